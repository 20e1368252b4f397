package policy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

const samplePolicy = `
default = "ask"
deadline = "90s"

[[rule]]
verdict = "deny"
command = ["rm", "git push"]
reason = "not here"

[[rule]]
verdict = "deny"
kind = ["file_change"]
path = [".git/**", "/etc/**"]

[[rule]]
verdict = "allow"
command = ["go test", "git status", "ls", "cat", "wc", "echo"]

[[rule]]
verdict = "ask"
kind = ["file_change"]
path = ["src/secret/**"]

[[rule]]
verdict = "allow"
kind = ["file_change", "read"]
path = ["src/**", "*.md"]

[[rule]]
verdict = "allow"
tool = ["mcp__docs__*"]
`

func TestPolicyDecides(t *testing.T) {
	p, err := Parse(samplePolicy)
	if err != nil {
		t.Fatal(err)
	}
	if p.DeadlineMs != 90_000 {
		t.Errorf("deadline %d ms", p.DeadlineMs)
	}
	cwd := t.TempDir()
	command := func(line string) agent.Approval { return agent.Approval{Kind: agent.ActionCommand, Command: line} }
	change := func(paths ...string) agent.Approval {
		return agent.Approval{Kind: agent.ActionFileChange, Paths: paths}
	}
	tests := []struct {
		name string
		a    agent.Approval
		want agent.Verdict
		rule int
	}{
		{"prefix", command("go test ./..."), agent.VerdictAllow, 3},
		{"exactly", command("git status"), agent.VerdictAllow, 3},
		{"a word is whole", command("go tests"), agent.VerdictAsk, 0},
		{"shorter", command("git"), agent.VerdictAsk, 0},
		{"in a shell", command("/bin/bash -lc 'wc -l notes.txt'"), agent.VerdictAllow, 3},
		{"in two shells", command(`sh -c "bash -c 'ls -l'"`), agent.VerdictAllow, 3},
		{"all of a line", command("ls && go test ./... | cat; echo $HOME"), agent.VerdictAllow, 3},
		{"one of a line is not", command("ls && make"), agent.VerdictAsk, 0},
		{"one of a line is denied", command("ls; rm -rf x"), agent.VerdictDeny, 1},
		{"denied in a shell", command("bash -lc 'ls && rm x'"), agent.VerdictDeny, 1},
		{"denied by path", command("/bin/rm x"), agent.VerdictDeny, 1},
		{"denied behind a wrapper", command("sudo -n rm x"), agent.VerdictDeny, 1},
		{"denied behind an assignment", command("A=1 rm x"), agent.VerdictDeny, 1},
		{"denied in a substitution", command("echo $(rm x)"), agent.VerdictDeny, 1},
		{"denied in backticks", command("echo `rm x`"), agent.VerdictDeny, 1},
		{"denied with two words", command("git push -f"), agent.VerdictDeny, 1},
		{"mentioned as an argument", command("cat rm"), agent.VerdictAllow, 3},
		{"mentioned in quotes", command(`echo "rm x"`), agent.VerdictAllow, 3},
		{"substitution", command("echo $(make)"), agent.VerdictDeny, 1},
		{"substitution in quotes", command(`echo "$(make)"`), agent.VerdictDeny, 1},
		{"redirection", command("cat a > b"), agent.VerdictAsk, 0},
		{"appending", command("cat a >>b"), agent.VerdictAsk, 0},
		{"here document", command("cat <<X\nhi\nX"), agent.VerdictDeny, 1},
		{"to nowhere", command("cat a 2>&1 >/dev/null"), agent.VerdictAllow, 3},
		{"to a file with that beginning", command("cat a >/dev/nullx"), agent.VerdictAsk, 0},
		{"newline", command("ls\nmake"), agent.VerdictAsk, 0},
		{"background", command("ls & make"), agent.VerdictAsk, 0},
		{"assignment", command("LD_PRELOAD=x ls"), agent.VerdictAsk, 0},
		{"another program of that name", command("/tmp/ls"), agent.VerdictAsk, 0},
		{"command from a variable", command("$X status"), agent.VerdictDeny, 1},
		{"unclosed quote", command("ls 'a"), agent.VerdictDeny, 1},
		{"subshell", command("(ls)"), agent.VerdictDeny, 1},
		{"comment", command("ls # x"), agent.VerdictDeny, 1},
		{"no command", command("  "), agent.VerdictAsk, 0},
		{"path", change("src/a.go"), agent.VerdictAllow, 5},
		{"absolute path", change(filepath.Join(cwd, "src/b/c.go")), agent.VerdictAllow, 5},
		{"every path", change("src/a.go", "README.md"), agent.VerdictAllow, 5},
		{"one path is not", change("src/a.go", "Makefile"), agent.VerdictAsk, 0},
		{"one path is to be asked for", change("src/a.go", "src/secret/k"), agent.VerdictAsk, 4},
		{"one path is denied", change("src/a.go", ".git/config"), agent.VerdictDeny, 2},
		{"dots", change("src/../.git/config"), agent.VerdictDeny, 2},
		{"dots out", change("src/../../x"), agent.VerdictAsk, 0},
		{"star stays in a directory", change("docs/a.md"), agent.VerdictAsk, 0},
		{"absolute pattern", change("/etc/passwd"), agent.VerdictDeny, 2},
		{"no path", change(), agent.VerdictAsk, 0},
		{"another kind", agent.Approval{Kind: agent.ActionFetch, Paths: []string{"src/a"}}, agent.VerdictAsk, 0},
		{"tool", agent.Approval{Kind: agent.ActionMCP, Tool: "mcp__docs__search"}, agent.VerdictAllow, 6},
		{"another tool", agent.Approval{Kind: agent.ActionMCP, Tool: "mcp__mail__send"}, agent.VerdictAsk, 0},
	}
	for _, tt := range tests {
		if v, rule := Decide(p, tt.a, cwd); v != tt.want || rule != tt.rule {
			t.Errorf("%s: %s by rule %d, want %s by rule %d", tt.name, v, rule, tt.want, tt.rule)
		}
	}
	// A line that is not understood is denied by rule 1, and not allowed without it.
	p.Rules = p.Rules[1:]
	for _, line := range []string{"echo $(make)", `echo "$(make)"`, "cat <<X\nhi\nX", "$X status", "ls 'a", "(ls)", "ls # x"} {
		if v, rule := Decide(p, command(line), cwd); v != agent.VerdictAsk || rule != 0 {
			t.Errorf("%s without a deny rule: %s by rule %d", line, v, rule)
		}
	}
}

func TestPolicyFollowsLinks(t *testing.T) {
	p, err := Parse("default = \"deny\"\n[[rule]]\nverdict = \"allow\"\npath = [\"src/**\"]")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	cwd := filepath.Join(root, "work")
	link := filepath.Join(root, "link")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(cwd, "src"), 0o755),
		os.Mkdir(filepath.Join(root, "out"), 0o755),
		os.Symlink(cwd, link),
		os.Symlink(filepath.Join(root, "out"), filepath.Join(cwd, "src", "out")),
		os.Symlink("../../out/new", filepath.Join(cwd, "src", "nowhere")),
		os.Symlink("loop", filepath.Join(cwd, "src", "loop")),
		os.Symlink("a.go", filepath.Join(cwd, "src", "b.go")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]agent.Verdict{
		"src/a.go":      agent.VerdictAllow,
		"src/new/a.go":  agent.VerdictAllow,
		"src/b.go":      agent.VerdictAllow,
		"src/out/a.go":  agent.VerdictDeny,
		"src/nowhere":   agent.VerdictDeny,
		"src/loop":      agent.VerdictAllow,
		"../work/src/a": agent.VerdictAllow,
		link + "/src/a": agent.VerdictDeny, // not the name that was allowed
	} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionFileChange, Paths: []string{path}}, cwd); v != want {
			t.Errorf("%s: %s, want %s", path, v, want)
		}
	}
	// Where the run was started through the link, both names are its own.
	for _, path := range []string{"src/a.go", filepath.Join(cwd, "src/a.go"), filepath.Join(link, "src/a.go")} {
		if v, _ := Decide(p, agent.Approval{Kind: agent.ActionFileChange, Paths: []string{path}}, link); v != agent.VerdictAllow {
			t.Errorf("%s through the link: %s", path, v)
		}
	}
}

func TestPolicyThatMakesNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"default = \"maybe\"": "default",
		"fallback = \"deny\"": "unknown key",
		"[[rule]]":            "verdict",
		"[[rule]]\nverdict = \"allow\"\npaths = [\"x\"]":   `unknown key "rule.paths"; did you mean "path"?`,
		"[[rule]]\nverdict = \"allow\"\ncommand = [\" \"]": "empty command",
		"[[rule]]\nverdict = \"allow\"\npath = [\"\"]":     "empty path",
		"[[rule]]\nverdict = \"allow\"\nkind = [\"\"]":     "empty kind",
		"[[rule]]\nverdict = \"allow\"\ntool = [\"a[\"]":   "tool pattern",
		"[[rule]]\nverdict = \"allow\"\ncommand = \"ls\"":  "",
		"deadline = \"-1s\"":                               "longer",
		"deadline = \"soon\"":                              "duration",
		"x = ":                                             "",
	} {
		if _, err := Parse(text); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	file := filepath.Join(t.TempDir(), "policy.toml")
	if _, err := Read(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, make([]byte, MaxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "larger") {
		t.Errorf("too large: %v", err)
	}
}

// A policy travels to where the run is as JSON.
func TestPolicyAsJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := os.WriteFile(file, []byte(samplePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	back := new(agent.Policy)
	if err := json.Unmarshal(b, back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(b) || len(back.Rules) != 6 {
		t.Errorf("%s became %s", b, again)
	}
}

func TestJudgeNamesItsRule(t *testing.T) {
	p, err := Parse(samplePolicy)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(kind string, a any) spool.Ask {
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return spool.Ask{Kind: kind, Data: b}
	}
	tests := []struct {
		ask    spool.Ask
		ok     bool
		choice string
		by     string
		why    string
	}{
		{ask(agent.AskApproval, agent.Approval{Kind: agent.ActionCommand, Command: "ls"}), true, agent.Allow, "policy: rule 3", ""},
		{ask(agent.AskApproval, agent.Approval{Kind: agent.ActionCommand, Command: "rm x"}), true, agent.Deny, "policy: rule 1", "not here"},
		{ask(agent.AskApproval, agent.Approval{Kind: agent.ActionFileChange, Paths: []string{"/etc/x"}}), true, agent.Deny, "policy: rule 2", "The policy"},
		{ask(agent.AskApproval, agent.Approval{Kind: agent.ActionCommand, Command: "make"}), false, "", "", ""},
		{ask(agent.AskApproval, []int{1}), false, "", "", ""},
		{ask(agent.AskQuestion, agent.Approval{Kind: agent.ActionCommand, Command: "ls"}), false, "", "", ""},
	}
	for _, tt := range tests {
		d, by, ok := (Judge{p, "/w"}).Decide(tt.ask)
		if ok != tt.ok || d.Choice != tt.choice || by != tt.by || !strings.Contains(d.Message, tt.why) {
			t.Errorf("%s: %+v by %q, %v", tt.ask.Data, d, by, ok)
		}
	}
	p.Default = agent.VerdictDeny
	if d, by, ok := (Judge{p, "/w"}).Decide(ask(agent.AskApproval, agent.Approval{Command: "make"})); !ok || d.Choice != agent.Deny || by != "policy: default" {
		t.Errorf("default: %+v by %q, %v", d, by, ok)
	}
}

// FuzzParse checks what an allow rule relies on: a line that was understood has
// no shell syntax in it that its commands do not show.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"ls -l", "a && b | c; d", `bash -lc 'x "y z"'`, `echo "$(x)"`, "a > b", "a 2>&1", "`x`", "'", "a\\\nb", "$X", "a $X"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		s := parse(line)
		for _, c := range s.commands {
			if !s.understood || len(c) == 0 {
				t.Fatalf("%q has the commands %v, understood: %v", line, s.commands, s.understood)
			}
		}
		deniesScript(s, []string{"rm"}, maxShells)
		if !s.understood || s.files || strings.ContainsAny(line, "'\"\\") { // what is quoted is not syntax
			return
		}
		if strings.ContainsAny(strings.ReplaceAll(line, "{}", ""), "`(){}") || strings.Contains(line, ">>") || strings.Contains(line, "<<") {
			t.Fatalf("%q was taken for plain: %v", line, s.commands)
		}
	})
}
