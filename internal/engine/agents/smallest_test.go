package agents

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// What follows up to the end mark is the example of docs/agents.md.

func pipAgent() *talk.Agent {
	return &talk.Agent{
		Name: "pip", Program: "pip-agent", Install: "npm install -g pip-agent",
		Signal: syscall.SIGTERM, // on which it ends well
		Exec:   func(s talk.Setup) (talk.Conversation, error) { return &pip{Setup: s}, nil },
	}
}

type pip struct {
	talk.OneShot // a process takes one prompt, and nothing can be said to it
	talk.Setup
}

func (c *pip) Command() (talk.Command, error) {
	argv := []string{cmp.Or(c.Config.Program, "pip-agent"), "--json"}
	if c.Resume != "" {
		argv = append(argv, "--session", c.Resume)
	}
	return talk.WithPrompt(append(argv, c.Config.Extra...), c.Opening.Text, nil), nil
}

func (c *pip) Line(b []byte, t *talk.Turn) {
	var l struct {
		Type, Session, ID, Text, Command string
		Exit                             int
	}
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
		return
	}
	t.Session(l.Session)
	switch l.Type {
	case "run":
		t.Action(agent.Action{ID: l.ID, Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: l.Command})
	case "ran":
		t.Action(agent.Action{ID: l.ID, Phase: agent.ActionCompleted, OK: new(l.Exit == 0), ExitCode: &l.Exit, Output: l.Text})
	case "say":
		t.Message(agent.Message{Text: l.Text})
	case "end":
		t.Finish(talk.Result{Outcome: spool.TurnOK})
	case "fail":
		t.Finish(talk.Result{Outcome: spool.TurnError, Error: l.Text})
	default:
		t.Unknown(l.Type, b)
	}
}

func (c *pip) Ended(x talk.Exit, t *talk.Turn) { t.Finish(talk.FailedExit("pip", x, "")) }

// end

// TestSmallestAgent has the example of the documentation talk to a pip-agent.
func TestSmallestAgent(t *testing.T) {
	program := fakeCLI(t, `echo '{"type":"run","session":"s1","id":"c1","command":"echo hi"}'
echo '{"type":"ran","id":"c1","exit":0,"text":"hi"}'
echo '{"type":"news","of":"tomorrow"}'
echo '{"type":"say","text":"Done: '"$(cat)"'"}'
echo '{"type":"end"}'
`)
	before := known
	known = append(known[:len(known):len(known)], pipAgent)
	defer func() { known = before }()
	r := converse(t, newEngine(t), agent.Config{Agent: "pip", Program: program})
	d := r.ask("Go.")
	if d.Outcome != spool.TurnOK || d.Answer != "Done: Go." || d.Resume != "s1" {
		t.Errorf("done %+v", d)
	}
	want := []spool.Kind{spool.KindStarted, agent.KindAction, agent.KindAction, spool.KindNotice, agent.KindMessage, spool.KindDone, spool.KindExited}
	if got := kinds(t, r.log); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// TestSmallestAgentIsDocumented keeps the documentation to what was tried.
func TestSmallestAgentIsDocumented(t *testing.T) {
	code, err := os.ReadFile("smallest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(code), "docs/agents.md.\n\n")
	example, _, _ = strings.Cut(example, "\n// end\n")
	doc, err := os.ReadFile("../../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```go\n"+example+"```\n") {
		t.Errorf("docs/agents.md does not have this example:\n%s", example)
	}
}
