package codextest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/spool-run/spool/internal/modeltest"
)

// TestTools checks the tools that codex offers, on which the steps rely.
func TestTools(t *testing.T) {
	server := startServer(t)
	u := begin(t, server.URL(), t.TempDir(), modeltest.Say("done"))
	result, _ := u.end(t)
	request := u.model.Requests()[0]
	for name, want := range map[string]string{
		"exec_command": "function",
		"write_stdin":  "function",
		"apply_patch":  "custom",
	} {
		if tool := request.Tool(name); tool == nil || tool.Type != want {
			t.Errorf("tool %s is %+v, want type %s", name, tool, want)
		}
	}
	messages := result.Completed("agent_message")
	if len(messages) != 1 || messages[0].Text != "done" {
		t.Errorf("codex reported the messages %+v, want done", messages)
	}
}

// TestToken checks that the token reaches a server that requires one.
func TestToken(t *testing.T) {
	const token = "open-sesame"
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, "--ws-auth=capability-token", "--ws-token-file="+file)
	m := newModel(t, Run(Command{Cmd: "echo in"}), modeltest.Say("done"))
	_, err := Exec(t.Context(), Config{
		Binary: Binary(t), Model: m.URL(), Server: server.URL(), Token: token, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if outs := Outputs(m); len(outs) != 1 || outs[0].Text != "in\n" {
		t.Errorf("the model saw %+v, want in", outs)
	}
}

// TestExecFails checks that a failed turn is a result with its events.
func TestExecFails(t *testing.T) {
	server := startServer(t)
	m := newModel(t)
	result, err := Exec(t.Context(), Config{
		Binary: Binary(t), Model: m.URL(), Server: server.URL(), Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode == 0 || m.Err() == nil {
		t.Errorf("exit code %d, model error %v, want both", result.ExitCode, m.Err())
	}
	if last := result.Events[len(result.Events)-1]; last.Type != "turn.failed" {
		t.Errorf("last event is %s, want turn.failed", last.Raw)
	}
}

// TestExecCanceled checks that codex does not outlive its context.
func TestExecCanceled(t *testing.T) {
	server := startServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := newModel(t, modeltest.Say("never").When(func(context.Context) error {
		cancel()
		return nil
	}).After(nil))
	_, err := Exec(ctx, Config{
		Binary: Binary(t), Model: m.URL(), Server: server.URL(), Dir: t.TempDir(),
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
