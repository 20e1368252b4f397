package codextest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Step answers one request to a [Model]. The context ends with the request.
type Step func(ctx context.Context, r *Request) ([]Item, error)

// Say answers with a message. Without calls beside it, it ends the turn.
func Say(text string) Step {
	return func(context.Context, *Request) ([]Item, error) {
		return []Item{{
			Type:    itemMessage,
			Role:    "assistant",
			Content: Content{{Type: "output_text", Text: text}},
		}}, nil
	}
}

// Call answers with a call of a function tool; args become its JSON
// arguments.
func Call(tool string, args any) Step {
	return func(_ context.Context, r *Request) ([]Item, error) {
		if r.Tool(tool) == nil {
			return nil, fmt.Errorf("codex offers no tool %s", tool)
		}
		data, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("encode arguments of %s: %w", tool, err)
		}
		return []Item{{Type: itemFunctionCall, Name: tool, Arguments: string(data)}}, nil
	}
}

// CallCustom answers with a call of a tool with free form input.
func CallCustom(tool, input string) Step {
	return func(_ context.Context, r *Request) ([]Item, error) {
		if r.Tool(tool) == nil {
			return nil, fmt.Errorf("codex offers no tool %s", tool)
		}
		return []Item{{Type: itemCustomCall, Name: tool, Input: input}}, nil
	}
}

// Command holds the arguments of the exec_command tool. YieldMillis is how
// long the model waits for the end of the command before it gets a session to
// go on with; codex keeps it between 250 and 30000.
type Command struct {
	Cmd             string `json:"cmd"`
	Workdir         string `json:"workdir,omitempty"`
	TTY             bool   `json:"tty,omitempty"`
	YieldMillis     int    `json:"yield_time_ms,omitempty"`
	MaxOutputTokens int    `json:"max_output_tokens,omitempty"`
}

// Run answers with a shell command.
func Run(c Command) Step { return Call("exec_command", c) }

// Patch answers with a call of the apply_patch tool.
func Patch(patch string) Step { return CallCustom("apply_patch", patch) }

// WriteStdin answers by typing into the command that was last reported as
// running. The call returns at its end or after yieldMillis; zero means the
// 250 of codex.
func WriteStdin(chars string, yieldMillis int) Step {
	return func(ctx context.Context, r *Request) ([]Item, error) {
		session := 0
		for _, out := range r.Outputs() {
			if out.Session != 0 {
				session = out.Session
			}
		}
		if session == 0 {
			return nil, errors.New("no command is running to write to")
		}
		args := map[string]any{"session_id": session, "chars": chars}
		if yieldMillis != 0 {
			args["yield_time_ms"] = yieldMillis
		}
		return Call("write_stdin", args)(ctx, r)
	}
}

// After returns a step that answers only when gate is closed or sends.
func (s Step) After(gate <-chan struct{}) Step {
	return s.When(func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// When returns a step that answers only when ready has returned. The answer
// is made first: a step that cannot be played does not wait.
func (s Step) When(ready func(context.Context) error) Step {
	return func(ctx context.Context, r *Request) ([]Item, error) {
		items, err := s(ctx, r)
		if err != nil {
			return nil, err
		}
		if err := ready(ctx); err != nil {
			return nil, fmt.Errorf("wait before answer: %w", err)
		}
		return items, nil
	}
}
