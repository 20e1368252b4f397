package main_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/servertest"
)

// commandRig runs the real spool with the real codex.
type commandRig struct {
	t     *testing.T
	dir   string
	state string
	env   []string
}

func newCommandRig(t *testing.T, script modeltest.Script) *commandRig {
	t.Helper()
	m, err := modeltest.New(script)
	if err != nil {
		t.Fatal(err)
	}
	r := &commandRig{t: t, dir: t.TempDir(), state: t.TempDir()}
	env := maps.Clone(agenttest.Home(t, agenttest.Codex, m))
	env["SPOOL_STATE"] = r.state
	for name, value := range env {
		r.env = append(r.env, name+"="+value)
	}
	t.Cleanup(func() {
		servertest.EndKeepers(t, r.state)
		m.Close()
	})
	return r
}

func (r *commandRig) command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	r.t.Helper()
	cmd = exec.CommandContext(r.t.Context(), servertest.Binary(r.t), args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// wantIn checks that a text has all of these.
func wantIn(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in:\n%s", w, text)
		}
	}
}

// TestAgentCommand has a person run codex with spool agent, on this machine
// and on a server, and read the log.
func TestAgentCommand(t *testing.T) {
	t.Parallel()
	r := newCommandRig(t, modeltest.ByTurn(modeltest.Shell("echo made >made.txt"), modeltest.Say("All done."), modeltest.Say("Still here.")))
	cmd, stdout, stderr := r.command("agent", "codex", "--name", "task", "--sandbox", "danger-full-access", "--permissions", "never", "Make it.")
	if err := cmd.Run(); err != nil || stdout.String() != "All done.\n" {
		t.Fatalf("%v: %s\n%s", err, stdout, stderr)
	}
	wantIn(t, stderr.String(), "codex ", "echo made >made.txt", "✓ done", "tokens in", "resume with `spool agent codex --resume ", "or `codex resume ")
	if _, err := os.Stat(filepath.Join(r.dir, "made.txt")); err != nil {
		t.Error(err)
	}
	cmd, stdout, stderr = r.command("agent", "codex", "--mode", "exec", "--resume", "task", "Are you there?")
	if err := cmd.Run(); err != nil || stdout.String() != "Still here.\n" {
		t.Errorf("%v: %s\n%s", err, stdout, stderr)
	}
	cmd, stdout, stderr = r.command("logs", "task")
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	wantIn(t, stdout.String(), "> Make it.", "echo made >made.txt", "All done.", "✓ done")

	// A server has no environment but its own: what the agent needs is named.
	server := servertest.Start(t, t.TempDir())
	args := []string{"agent", "codex", "--server", server.URL, "--cwd", r.dir, "--sandbox", "danger-full-access", "--permissions", "never"}
	for _, v := range r.env {
		args = append(args, "--env", v)
	}
	cmd, stdout, stderr = r.command(append(args, "Make it.")...)
	if err := cmd.Run(); err != nil || stdout.String() != "All done.\n" {
		t.Errorf("over a server: %v: %s\n%s", err, stdout, stderr)
	}
}

// TestAgentCommandKilled kills spool agent in the middle of a turn: the turn
// goes on, and the run ends with it.
func TestAgentCommandKilled(t *testing.T) {
	t.Parallel()
	r := newCommandRig(t, modeltest.ByTurn(modeltest.Shell("echo >there; read _ <proceed"), modeltest.Say("All done.")))
	there, proceed := fifotest.New(t, r.dir, "there"), fifotest.New(t, r.dir, "proceed")
	cmd, _, stderr := r.command("agent", "codex", "--name", "task", "--sandbox", "danger-full-access", "--permissions", "never", "Wait.")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := there.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatalf("it was not killed\n%s", stderr)
	}
	if err := proceed.Release(); err != nil {
		t.Fatal(err)
	}
	cmd, stdout, stderr := r.command("logs", "--follow", "task")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	wantIn(t, stdout.String(), "All done.", "✓ done")
}
