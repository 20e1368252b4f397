package codextest

import (
	"context"
	"errors"

	"github.com/spool-run/spool/internal/modeltest"
)

// Command holds the arguments of the exec_command tool. YieldMillis is how long
// the model waits for the end of the command before it gets a session instead;
// codex limits it to 250 to 30000.
type Command struct {
	Cmd             string `json:"cmd"`
	Workdir         string `json:"workdir,omitempty"`
	TTY             bool   `json:"tty,omitempty"`
	YieldMillis     int    `json:"yield_time_ms,omitempty"`
	MaxOutputTokens int    `json:"max_output_tokens,omitempty"`
}

// Run answers with a shell command.
func Run(c Command) modeltest.Step { return modeltest.Call("exec_command", c) }

// Patch answers with a call of the apply_patch tool.
func Patch(patch string) modeltest.Step { return modeltest.CallCustom("apply_patch", patch) }

// WriteStdin answers by typing into the last running command. The call returns
// at the end of the command or after yieldMillis; zero means codex's default of
// 250.
func WriteStdin(chars string, yieldMillis int) modeltest.Step {
	return func(ctx context.Context, r *modeltest.Request) (modeltest.Reply, error) {
		session := 0
		for _, out := range outputs(r) {
			if out.Session != 0 {
				session = out.Session
			}
		}
		if session == 0 {
			return modeltest.Reply{}, errors.New("no command is running to write to")
		}
		args := map[string]any{"session_id": session, "chars": chars}
		if yieldMillis != 0 {
			args["yield_time_ms"] = yieldMillis
		}
		return modeltest.Call("write_stdin", args)(ctx, r)
	}
}
