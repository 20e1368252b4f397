package agents

import (
	"errors"
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/privatedir"
)

// patient is a claude that answers "plain", asks for a permission at "ask", and
// says something and then waits to be interrupted at "slow".
const patient = `result() { echo '{"type":"result","subtype":"success","is_error":false,"result":"'"$1"'","session_id":"s-1"}'; }
while read -r line; do case $line in
*'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"spool-1","response":{}}}';;
*'"type":"user"'*) echo '` + claudeInit + `'
	case $line in
	*slow*) echo '{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"begun"}]}}';;
	*plain*) result "plain";;
	*) echo '{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"make"}}}';;
	esac;;
*'"interrupt"'*) echo '{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","session_id":"s-1"}';;
*'"behavior":"allow"'*) result allowed;;
esac; done
`

// TestEngine runs the suite of all engines with a fake agent that is a real
// process.
func TestEngine(t *testing.T) {
	enginetest.Run(t, enginetest.Subject{
		Engine: agent.Engine,
		Open:   func(t *testing.T) engine.Engine { return newEngine(t) },
		Spec: func(t *testing.T) spool.Spec {
			c := agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex, Program: fakeCLI(t, patient)}
			return spool.Spec{
				Engine: agent.Engine, Config: mustJSON(t, c), Cwd: t.TempDir(),
				Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()},
			}
		},
		Turns: enginetest.Turns{
			Kind:   spool.InputPrompt,
			Quick:  func() any { return spool.Prompt{Text: "plain"} },
			Slow:   func(timeoutMs int64) any { return spool.Prompt{Text: "slow", TimeoutMs: timeoutMs} },
			Ask:    func() any { return spool.Prompt{Text: "ask"} },
			Answer: agent.Allow,
		},
		Without: map[string]string{enginetest.GroupArgv: "an agent has prompts in place of an argv"},
	})
}

// Without a home directory, the state of the engine is in a directory for temporary
// files, where another user may have made one with the same name.
func TestNewRefusesDefaultDirThatIsNotPrivate(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("TMPDIR", t.TempDir())
	dir := DefaultDir()
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if e, err := New(Options{}); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("an engine with its state in a directory that others can write to: %v", err)
		if err == nil {
			_ = e.Close()
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
