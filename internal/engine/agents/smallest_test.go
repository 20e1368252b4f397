package agents

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// What follows up to the end mark is the example of docs/agents.md.

func pipRunner() *runner {
	return &runner{
		name: "pip", program: "pip-agent", install: "npm install -g pip-agent",
		signal: syscall.SIGTERM, // on which it ends well
		exec:   func(s setup) (conversation, error) { return &pip{setup: s}, nil },
	}
}

type pip struct {
	oneShot // a process takes one prompt, and nothing can be said to it
	setup
}

func (c *pip) command() (command, error) {
	argv := []string{first(c.config.Program, "pip-agent"), "--json"}
	if c.resume != "" {
		argv = append(argv, "--session", c.resume)
	}
	return saying(append(argv, c.config.Extra...), c.opening.Text, nil), nil
}

func (c *pip) line(b []byte, t *turn) {
	var l struct {
		Type, Session, ID, Text, Command string
		Exit                             int
	}
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	t.session(l.Session)
	switch l.Type {
	case "run":
		t.action(agent.Action{ID: l.ID, Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: l.Command})
	case "ran":
		t.action(agent.Action{ID: l.ID, Phase: agent.ActionCompleted, OK: is(l.Exit == 0), ExitCode: &l.Exit, Output: l.Text})
	case "say":
		t.message(agent.Message{Text: l.Text})
	case "end":
		t.finish(result{outcome: spool.TurnOK})
	case "fail":
		t.finish(result{outcome: spool.TurnError, err: l.Text})
	default:
		t.unknown(l.Type, b)
	}
}

func (c *pip) ended(x exit, t *turn) { t.finish(failedExit("pip", x, "")) }

// end

// TestSmallestAgent has the example of the documentation talk to a pip-agent.
func TestSmallestAgent(t *testing.T) {
	program := fakeCLI(t, `echo '{"type":"run","session":"s1","id":"c1","command":"echo hi"}'
echo '{"type":"ran","id":"c1","exit":0,"text":"hi"}'
echo '{"type":"news","of":"tomorrow"}'
echo '{"type":"say","text":"Done: '"$3"'"}'
echo '{"type":"end"}'
`)
	before := known
	known = append(known[:len(known):len(known)], pipRunner)
	defer func() { known = before }()
	r := converse(t, newEngine(t), Config{Agent: "pip", Program: program})
	d := r.ask("Go.")
	if d.Outcome != spool.TurnOK || d.Answer != "Done: Go." || d.Resume != "s1" {
		t.Errorf("done %+v", d)
	}
	want := []spool.Kind{spool.KindStarted, spool.KindAction, spool.KindAction, spool.KindNotice, spool.KindMessage, spool.KindDone, spool.KindExited}
	if diff := cmp.Diff(want, kinds(t, r.log)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
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
