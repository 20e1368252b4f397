package policy

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// TestRetype has a rule say that what is dangerous is typed again.
func TestRetype(t *testing.T) {
	p := mustParse(t, `
[[rule]]
verdict = "ask"
command = ["rm"]
retype = true

[[rule]]
verdict = "allow"
command = ["ls"]
`)
	j := Judge{Policy: p, Cwd: "/"}
	for command, want := range map[string]bool{"rm -rf build": true, "ls": false, "make": false} {
		data, err := json.Marshal(agent.Approval{Kind: "command", Command: command})
		if err != nil {
			t.Fatal(err)
		}
		if got := j.Retype(spool.Ask{Kind: agent.AskApproval, Data: data}); got != want {
			t.Errorf("%s: %t", command, got)
		}
	}
	if (Judge{}).Retype(spool.Ask{Kind: agent.AskApproval, Data: json.RawMessage(`{}`)}) {
		t.Error("without a policy")
	}
	if _, err := Parse("[[rule]]\nverdict = \"deny\"\nretype = true"); err == nil {
		t.Error("a rule that denies has nothing to type again")
	}
}
