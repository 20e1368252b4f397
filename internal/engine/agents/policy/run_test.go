package policy

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spool-run/spool/agent"
)

// The programs of the lines that are generated. Tripwires leave a file when they
// run.
var (
	allowedPrograms = []string{"git", "echo", "ls", "cat"}
	tripwires       = []string{"touch", "pwn", "rm", "env", "xargs", "make", "git-push", "nice"}
)

const runPolicy = `
default = "ask"
[[rule]]
verdict = "allow"
command = ["git status", "echo", "ls", "cat"]
`

const denyPolicy = `
default = "allow"
[[rule]]
verdict = "deny"
command = ["touch", "pwn", "git push"]
`

// scratch is a directory in which lines run. The only programs on its PATH are
// stubs of allowed programs, tripwires and shells.
type scratch struct {
	work, tripped string
	env           []string
	shells        []string
}

func newScratch(t testing.TB) *scratch {
	t.Helper()
	root := t.TempDir()
	s := &scratch{work: filepath.Join(root, "work"), tripped: filepath.Join(root, "tripped")}
	bin := filepath.Join(root, "bin")
	for _, dir := range []string{s.work, s.tripped, bin} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "bash"} {
		if file, err := exec.LookPath(name); err == nil {
			s.shells = append(s.shells, file)
			if err := os.Symlink(file, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(s.shells) == 0 {
		t.Fatal("there is no shell")
	}
	stub := func(name, body string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!"+s.shells[0]+"\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range allowedPrograms {
		stub(name, "exit 0")
	}
	stub("git", `case "$1" in status) ;; push) : > '`+s.tripped+`/git-push' ;; *) : > '`+s.tripped+`/git' ;; esac`)
	for _, name := range tripwires {
		body := ": > '" + s.tripped + "/" + name + "'"
		switch name { // these run their arguments
		case "env", "nice":
			body += "\n\"$@\""
		case "xargs":
			body += "\nread line; \"$@\" $line"
		}
		stub(name, body)
	}
	s.reset(t)
	s.env = []string{"PATH=" + bin, "HOME=" + s.work, "X=touch PWNED", "Y=;touch PWNED;", "Z=$(touch PWNED)", "E="}
	return s
}

// bait are the files that globs in a line expand to.
var bait = []string{"$(touch PWNED)", ";touch PWNED;", "touch"}

func (s *scratch) reset(t testing.TB) {
	for _, dir := range []string{s.work, s.tripped} {
		for _, name := range names(t, dir) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range bait {
		if err := os.WriteFile(filepath.Join(s.work, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t testing.TB, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// run runs a line in a shell and returns the tripwires that it ran, and whether
// it made or removed files.
func (s *scratch) run(t testing.TB, shell, line string) (tripped []string, changed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, "-c", line)
	cmd.Dir, cmd.Env = s.work, s.env
	var out bytes.Buffer // Wait waits for background processes, which hold it
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute // a process that is late would run beside the next line
	_ = cmd.Run()               // many lines have syntax errors
	if ctx.Err() != nil {
		t.Errorf("%s -c %q does not end", shell, line)
	}
	tripped, changed = names(t, s.tripped), !slices.Equal(names(t, s.work), bait)
	if len(tripped) > 0 || changed {
		s.reset(t)
	}
	return tripped, changed
}

// checkAllowed reports whether the policy allows a line, and fails if the line
// then runs something else.
func (s *scratch) checkAllowed(t testing.TB, p *agent.Policy, line string) bool {
	if strings.IndexByte(line, 0) >= 0 {
		return false // no argument holds it
	}
	if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, s.work); v != agent.VerdictAllow {
		return false
	}
	for _, shell := range s.shells {
		if tripped, changed := s.run(t, shell, line); len(tripped) > 0 || changed {
			t.Errorf("%s -c %q is allowed and ran %q; files changed: %v", shell, line, tripped, changed)
		}
	}
	return true
}

// checkDenied reports whether the policy does not deny a line, and fails if the
// line then runs a program that is denied.
func (s *scratch) checkDenied(t testing.TB, p *agent.Policy, line string) bool {
	if strings.IndexByte(line, 0) >= 0 {
		return false
	}
	if v, _ := Decide(p, agent.Approval{Kind: agent.ActionCommand, Command: line}, s.work); v == agent.VerdictDeny {
		return false
	}
	for _, shell := range s.shells {
		tripped, _ := s.run(t, shell, line)
		for _, name := range []string{"touch", "pwn", "git-push"} {
			if slices.Contains(tripped, name) {
				t.Errorf("%s -c %q is not denied and ran %s", shell, line, name)
			}
		}
	}
	return true
}

// shellLine generates lines for a shell. Most of them are valid.
func shellLine(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string { return (&lineGenerator{t}).line(depth) })
}

type lineGenerator struct{ t *rapid.T }

func (g *lineGenerator) one(of ...string) string { return rapid.SampledFrom(of).Draw(g.t, "of") }

// chance is true in n of a hundred cases.
func (g *lineGenerator) chance(n int) bool { return rapid.IntRange(0, 99).Draw(g.t, "chance") < n }

func (g *lineGenerator) line(depth int) string {
	var b strings.Builder
	for i := range rapid.IntRange(1, 3).Draw(g.t, "commands") {
		if i > 0 {
			b.WriteString(g.one("; ", " && ", " || ", " | ", " & ", "\n", ";", "&", "|", "|&", "\u00a0;"))
		}
		b.WriteString(g.command(depth))
	}
	line := b.String()
	if g.chance(15) { // something anywhere
		i := rapid.IntRange(0, len(line)).Draw(g.t, "at")
		line = line[:i] + g.one("'", `"`, `\`, "$", "`", ";", "\n", "\r", "(", ")", "{", "}", "#", "!", "*", "=", "<", ">", "&", "~", "\x01", "\x7f", "\u00a0", "\u2028", "\xff", "\\\n") + line[i:]
	}
	return line
}

func (g *lineGenerator) command(depth int) string {
	if depth > 0 && g.chance(25) {
		return g.nested(depth - 1)
	}
	var words []string
	if g.chance(5) {
		words = append(words, g.one("X=1", "PATH=.", "A='$(touch PWNED)'", "IFS=t", "B=$X"))
	}
	if g.chance(75) {
		words = append(words, g.one("git status", "git status", "echo", "ls", "cat", "'git' status", `git "status"`, `ec''ho`, `e\cho`, `"l"s`))
	} else {
		words = append(words, g.one("touch", "pwn", "rm", "make", "git push", "git", "/bin/touch", "env touch", "nice -n 1 pwn", "xargs touch", "env", "xargs",
			"eval", "exec", "command", "$X", "$E", "tou*", "t?uch", `to\uch`, "to''uch", `"touch"`, "{touch,PWNED}", "if true; then", "do", "!", "(", "{", "test -v", "[ -v", "printf -v",
			". ./touch", "trap", "alias ls=touch", "function ls {", "ls() {", "let", "read", "[[", "time", "\u00a0echo", "\u3000", "=touch"))
	}
	for range rapid.IntRange(0, 3).Draw(g.t, "arguments") {
		words = append(words, g.word(depth))
	}
	if g.chance(10) {
		words = append(words, g.one("2>&1", ">/dev/null", "2>/dev/null", "> OUT", ">>OUT", "&>OUT", ">&OUT", ">|OUT", "<>OUT", "<touch", "2>OUT", "<<<touch", "{fd}>OUT",
			"> /dev/null", "</dev/null", ">/dev/nullx", "<(touch PWNED)", ">(pwn)", "<<EOF\n$(touch PWNED)\nEOF\n", "<<'EOF'\ntouch PWNED\nEOF\n", "<<-E\n\tpwn\n\tE\n", "3>&1", ">&-"))
	}
	return strings.Join(words, g.one(" ", " ", " ", "\t", "  ", "\u00a0", "\\\n"))
}

// nested generates a shell with a script.
func (g *lineGenerator) nested(depth int) string {
	shell := g.one("sh -c", "bash -c", "bash -c", "bash -ec", "bash -xc", "bash -c --", "bash -c -x", "bash -O extglob -c", "env sh -c", "exec sh -c", "command bash -c",
		"./sh -c", "eval", "$SHELL -c", "X=1 sh -c", "sh", "bash -s <<<", "time sh -c", "nice bash -c")
	script := g.line(depth)
	switch g.one("single", "single", "double", "double", "exact", "bare", "joined", "ansi") {
	case "single":
		script = "'" + strings.ReplaceAll(script, "'", `'"'"'`) + "'"
	case "double": // expansions stay
		script = `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(script) + `"`
	case "exact":
		script = `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, "$", `\$`, "`", "\\`").Replace(script) + `"`
	case "joined":
		script = `"git status "` + g.one("$_", "*", "$X", "$Y", "$Z", `';touch PWNED'`, `\;pwn`, "?*", "~", `"$Y"`)
	case "ansi":
		script = "$'" + strings.NewReplacer("'", `\'`, `\`, `\\`).Replace(script) + "'"
	}
	if g.chance(20) {
		script += " " + g.word(depth)
	}
	return shell + " " + script
}

func (g *lineGenerator) word(depth int) string {
	var b strings.Builder
	for range rapid.IntRange(1, 2).Draw(g.t, "parts") {
		switch rapid.IntRange(0, 6).Draw(g.t, "part") {
		case 0:
			b.WriteString(g.one("a", "-s", "touch", "PWNED", "push", "1", "é", "日本", "x=y", "a#b", "--", "-c", "{}", "\u2028", "\u200b"))
		case 1:
			b.WriteString("'" + g.one("", ";touch PWNED", "$(pwn)", "a[$(touch PWNED)]", "`pwn`", "touch PWNED", "\n touch PWNED\n", `\`, "| pwn", "é") + "'")
		case 2:
			b.WriteString(`"` + g.one("", ";touch PWNED", "$X", "$Y a", "$Z", "$_", "$", "$ a", `\"`, `\\`, `\$(pwn)`, "'", "\n", "$(touch PWNED)", "`pwn`", "${X}", "$((a[0]))", "$1", "$@", `\`+"\n") + `"`)
		case 3:
			b.WriteString(`\` + g.one(";", "$", "'", `"`, `\`, " ", "|", "(", "t", "é", ">", "`", "\n", "#"))
		case 4:
			b.WriteString(g.one("$X", "$Y", "$Z", "$_", "$E", "$PWD", "$UNSET", "$?", "$@", "${Z}", "${X:-a}", "${a:=$(pwn)}", "$'a\\n'", `$"a"`, "$((1+1))", "$[1]"))
		case 5:
			b.WriteString(g.one("*", "?*", "[a-z]*", "~", "~/x", "{a,b}", "{1..3}", "!x", "^x", "@(a|b)"))
		case 6:
			if depth > 0 && g.chance(50) {
				b.WriteString(g.one("$(", "`", "<(") + g.line(depth-1) + g.one(")", "`", ")"))
			} else {
				b.WriteString("b")
			}
		}
	}
	return b.String()
}

// Lines from fixed seeds: what the policy allows runs nothing but what the rules
// name, and what it does not deny runs nothing that the rules deny.
func TestGeneratedLinesRunOnlyWhatRulesSay(t *testing.T) {
	s := newScratch(t)
	if tripped, changed := s.run(t, s.shells[0], `git status; git push; pwn; : > OUT`); !slices.Equal(tripped, []string{"git-push", "pwn"}) || !changed {
		t.Fatalf("tripwires: %q, files changed: %v", tripped, changed)
	}
	allow, deny := mustParse(t, runPolicy), mustParse(t, denyPolicy)
	lines := shellLine(2)
	end := time.Now().Add(4 * time.Second)
	generated, allowed, undenied := 0, 0, 0
	enough := func() bool { return time.Now().After(end) && allowed >= 5 && undenied >= 1 }
	for ; generated < 10_000 && !enough() && !t.Failed(); generated++ {
		line := lines.Example(generated)
		if s.checkAllowed(t, allow, line) {
			allowed++
		} else if s.checkDenied(t, deny, line) { // an allowed line has run
			undenied++
		}
	}
	t.Logf("%d lines: %d allowed, %d others not denied", generated, allowed, undenied)
	if !t.Failed() && (allowed < 5 || undenied < 1) {
		t.Errorf("of %d lines %d were allowed and %d not denied: the test shows nothing", generated, allowed, undenied)
	}
}

// FuzzGeneratedLines does so for as long as it is wanted.
func FuzzGeneratedLines(f *testing.F) {
	s := newScratch(f)
	allow, deny := mustParse(f, runPolicy), mustParse(f, denyPolicy)
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			line := shellLine(2).Draw(r, "line")
			s.checkAllowed(t, allow, line)
			s.checkDenied(t, deny, line)
		})(t, input)
	})
}
