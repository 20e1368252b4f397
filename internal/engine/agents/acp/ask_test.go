package acp

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/policy"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// approval returns what a permission request asks for.
func approval(t *testing.T, call string) agent.Approval {
	t.Helper()
	var tool toolCall
	if err := json.Unmarshal([]byte(call), &tool); err != nil {
		t.Fatal(err)
	}
	c := &client{Setup: talk.Setup{Cwd: "/w"}}
	return c.wanted(&tool, c.act(&tool))
}

// The locations of a tool call do not hide the files of its diff from the policy.
func TestPolicyJudgesLocationsAndDiff(t *testing.T) {
	p, err := policy.Parse(`
default = "ask"
[[rule]]
verdict = "deny"
path = [".git/**"]
[[rule]]
verdict = "allow"
kind = ["read"]
path = ["/**"]
[[rule]]
verdict = "allow"
path = ["src/**"]
`)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, call string
		paths      []string
		want       agent.Verdict
	}{
		{"the diff is elsewhere", `{"toolCallId":"1","kind":"edit","locations":[{"path":"/w/src/a.go"}],"content":[{"type":"diff","path":"/w/.git/config","newText":"x"}]}`,
			[]string{"/w/src/a.go", ".git/config"}, agent.VerdictDeny},
		{"the location is elsewhere", `{"toolCallId":"1","kind":"edit","locations":[{"path":"/w/.git/config"}],"content":[{"type":"diff","path":"/w/src/a.go","newText":"x"}]}`,
			[]string{"/w/.git/config", "src/a.go"}, agent.VerdictDeny},
		{"one of two diffs", `{"toolCallId":"1","kind":"edit","locations":[{"path":"/w/src/a.go"}],"content":[{"type":"diff","path":"/w/src/a.go","newText":"x"},{"type":"diff","path":"/x","newText":"x"}]}`,
			[]string{"/w/src/a.go", "/x"}, agent.VerdictAsk},
		{"the same file", `{"toolCallId":"1","kind":"edit","locations":[{"path":"/w/src/a.go"}],"content":[{"type":"diff","path":"/w/src/a.go","newText":"x"}]}`,
			[]string{"/w/src/a.go"}, agent.VerdictAllow},
		{"a diff that is called a read", `{"toolCallId":"1","kind":"read","locations":[{"path":"/x"}],"content":[{"type":"diff","path":"/x","newText":"x"}]}`,
			[]string{"/x"}, agent.VerdictAsk},
		{"a read", `{"toolCallId":"1","kind":"read","locations":[{"path":"/x"}]}`, []string{"/x"}, agent.VerdictAllow},
	}
	for _, tt := range tests {
		a := approval(t, tt.call)
		if v, _ := policy.Decide(p, a, "/w"); v != tt.want || !slices.Equal(a.Paths, tt.paths) {
			t.Errorf("%s: %s for %q, want %s for %q", tt.name, v, a.Paths, tt.want, tt.paths)
		}
	}
}

// An argument vector is judged word by word, and nothing of an input is left
// out.
func TestPolicyJudgesArgv(t *testing.T) {
	p, err := policy.Parse("default = \"ask\"\n[[rule]]\nverdict = \"deny\"\ncommand = [\"rm\"]\n[[rule]]\nverdict = \"allow\"\ncommand = [\"git status\", \"echo\"]")
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]agent.Verdict{
		`{"command":["git","status"]}`:                                           agent.VerdictAllow,
		`{"command":["git status"]}`:                                             agent.VerdictAsk,
		`{"command":["echo","a; rm x"]}`:                                         agent.VerdictAllow,
		`{"command":["echo","$(rm x)"]}`:                                         agent.VerdictAllow,
		`{"command":["echo","it's"]}`:                                            agent.VerdictAllow,
		`{"command":["/bin/bash","-lc","git status"]}`:                           agent.VerdictAllow,
		`{"command":["/bin/bash","-lc","echo 'a b'"]}`:                           agent.VerdictAllow,
		`{"command":["/bin/bash","-lc","rm x"]}`:                                 agent.VerdictDeny,
		`{"command":["bash","-c","echo","rm"]}`:                                  agent.VerdictDeny,
		`{"command":["/bin/bash","-lc","git status ';x'; bash -c \"echo $_\""]}`: agent.VerdictDeny,
		`{"command":["rm","x"]}`:                                                 agent.VerdictDeny,
		`{"command":["sh","-c","r\\m x"]}`:                                       agent.VerdictDeny,
		`{"command":["env","","rm"]}`:                                            agent.VerdictDeny,
		`{"command":["A=1","git","status"]}`:                                     agent.VerdictAsk,
		`{"command":"git status","cmd":"rm x"}`:                                  agent.VerdictDeny,
		`{"command":"bash","args":["-c","rm x"]}`:                                agent.VerdictDeny,
		`{"command":"git","args":["status"]}`:                                    agent.VerdictAllow,
		`{"cmd":"git status"}`:                                                   agent.VerdictAllow,
	} {
		a := approval(t, `{"toolCallId":"1","kind":"execute","title":"git status","rawInput":`+input+`}`)
		if v, _ := policy.Decide(p, a, "/w"); v != want {
			t.Errorf("%s is the line %s: %s, want %s", input, a.Command, v, want)
		}
	}
}
