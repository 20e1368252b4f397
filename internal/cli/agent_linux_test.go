package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/servertest"
)

// fakeCodex is an agent that asks for permission to run a command and prints the
// answer, or an agent that does not exit.
const fakeCodex = `#!/bin/sh
echo $$ >"$FAKE_DIR/pid"
T='"threadId":"0199-cccc","turnId":"t1"'
C='"type":"commandExecution","id":"c1","command":"make deploy"'
say() { printf '%s\n' "$1"; }
done_() {
	say "{\"method\":\"item/completed\",\"params\":{$T,\"item\":{\"type\":\"agentMessage\",\"id\":\"m1\",\"text\":\"$1\"}}}"
	say "{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"0199-cccc\",\"turn\":{\"id\":\"t1\",\"status\":\"completed\"}}}"
}
while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),.*/\1/p')
	case $line in
	*'"method":"initialize"'*) say "{\"id\":$id,\"result\":{}}";;
	*'"method":"thread/start"'*) say "{\"id\":$id,\"result\":{\"thread\":{\"id\":\"0199-cccc\"},\"model\":\"m\"}}";;
	*'"method":"turn/start"'*)
		say "{\"id\":$id,\"result\":{\"turn\":{\"id\":\"t1\"}}}"
		say "{\"method\":\"turn/started\",\"params\":{\"threadId\":\"0199-cccc\",\"turn\":{\"id\":\"t1\"}}}"
		say "{\"method\":\"item/started\",\"params\":{$T,\"item\":{$C,\"status\":\"inProgress\"}}}"
		case $line in *'Ask me'*) say "{\"id\":77,\"method\":\"item/commandExecution/requestApproval\",\"params\":{$T,\"itemId\":\"c1\",\"command\":\"make deploy\"}}";; esac
		case $line in *'Wonder'*) say "{\"id\":78,\"method\":\"item/tool/requestUserInput\",\"params\":{$T,\"itemId\":\"c1\",\"questions\":[{\"id\":\"q1\",\"question\":\"Which colour?\",\"options\":[{\"label\":\"red\"},{\"label\":\"blue\"}]},{\"id\":\"q2\",\"question\":\"Which word?\",\"isSecret\":true}]}}";; esac;;
	*'"method":"turn/interrupt"'*)
		case $FAKE_DEAF in 1) ;; *) say "{\"id\":$id,\"result\":{}}"
		say "{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"0199-cccc\",\"turn\":{\"id\":\"t1\",\"status\":\"interrupted\"}}}";; esac;;
	*'"method":"thread/backgroundTerminals/clean"'*) say "{\"id\":$id,\"result\":{}}";;
	*'"id":78'*)
		printf '%s' "$line" >"$FAKE_DIR/answers"
		done_ "I see.";;
	*accept*)
		say "{\"method\":\"item/completed\",\"params\":{$T,\"item\":{$C,\"status\":\"completed\",\"exitCode\":0}}}"
		done_ "Deployed.";;
	*decline*|*cancel*)
		say "{\"method\":\"item/completed\",\"params\":{$T,\"item\":{$C,\"status\":\"declined\"}}}"
		done_ "Then not.";;
	esac
done
`

// atAgent starts spool agent with the fake codex on a terminal.
func atAgent(t *testing.T, prompt string, env ...string) (c *terminal, dir string) {
	t.Helper()
	dir = t.TempDir()
	useAgent(t, dir, env...)
	return typeIn(t, servertest.StateDir(t), "agent", "codex", prompt), dir
}

// useAgent has spool find the fake codex, which keeps its files in a directory.
func useAgent(t *testing.T, dir string, env ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "codex"), []byte(fakeCodex), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("FAKE_DIR", dir)
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// wantGone fails if the fake codex runs.
func wantGone(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(b)), "stat"))
	if err != nil {
		return
	}
	if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X") {
		t.Errorf("the agent still runs: %s", stat)
	}
}

func TestAgentApprovedOnTerminal(t *testing.T) {
	c, dir := atAgent(t, "Ask me.")
	c.see("? codex asks to run a command")
	c.see("$ make deploy")
	c.see("[y] yes")
	c.see("[a] always in this session")
	c.see("press a key: ")
	// Not answers: another key, pasted text, and an arrow, which ends with the
	// letter of an answer.
	for _, keys := range []string{"q", "yes", "\x1b[A"} {
		c.typed(keys)
		c.see("\a")
	}
	// What follows an arrow at once is part of it, and keys that are read together
	// are pasted text.
	for wait := 200 * time.Millisecond; !c.sees("yes\r\n", wait); wait *= 2 {
		c.typed("y")
	}
	c.see("allowed")
	c.see("$ make deploy")
	c.see("Deployed.\r\n")
	c.see("done")
	c.see("or `codex resume 0199-cccc`")
	c.exits(0)
	wantGone(t, dir)
}

func TestAgentDeniedOnTerminal(t *testing.T) {
	c, dir := atAgent(t, "Ask me.")
	c.see("press a key: ")
	c.typed("n")
	c.see("denied")
	c.see("Then not.\r\n")
	c.exits(0)
	wantGone(t, dir)
}

// TestAgentDangerousOnTerminal allows what the policy calls dangerous: the user types it
// again, and may choose again after a mistake.
func TestAgentDangerousOnTerminal(t *testing.T) {
	dir := t.TempDir()
	useAgent(t, dir)
	policy := filepath.Join(dir, "policy.toml")
	if err := os.WriteFile(policy, []byte("[[rule]]\nverdict = \"ask\"\ncommand = [\"make\"]\nretype = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := typeIn(t, servertest.StateDir(t), "agent", "--policy", policy, "codex", "Ask me.")
	for _, typed := range []string{"make deplo", "make  deploy"} {
		c.see("press a key: ")
		c.typed("y")
		c.see("To allow it, type it again.")
		c.see("answer: ")
		c.typed(typed + "\n")
	}
	c.see("Deployed.\r\n")
	c.exits(0)
	wantGone(t, dir)
}

func TestAgentQuestionsOnTerminal(t *testing.T) {
	c, dir := atAgent(t, "Wonder.")
	c.see("? Which colour?")
	c.see("[2] blue")
	c.see("press a key: ")
	c.typed("2")
	c.see("? Which word?")
	c.see("answer: ")
	c.typed("sesame\n")
	c.see("I see.\r\n")
	c.see("done")
	c.exits(0)
	got, err := os.ReadFile(filepath.Join(dir, "answers"))
	if want := `{"id":78,"result":{"answers":{"q1":{"answers":["blue"]},"q2":{"answers":["sesame"]}}}}`; err != nil || string(got) != want {
		t.Errorf("the agent was told %s, %v", got, err)
	}
	if strings.Contains(c.all, "sesame") {
		t.Errorf("the secret was shown: %q", c.all)
	}
	wantGone(t, dir)
}

func TestAgentInterruptedOnTerminal(t *testing.T) {
	c, dir := atAgent(t, "Just go.")
	c.see(" $ make deploy ")
	c.typed("\x03")
	c.see("interrupting the turn")
	c.see("interrupted")
	c.see("resume with")
	c.exits(130)
	wantGone(t, dir)
}

func TestAgentInterruptedWhileAsking(t *testing.T) {
	c, dir := atAgent(t, "Ask me.")
	c.see("press a key: ")
	c.typed("\x03")
	c.see("✗ interrupted")
	c.exits(130)
	wantGone(t, dir)
}

// TestAgentStoppedOnTerminal presses Ctrl-C twice with an agent that ignores the
// first.
func TestAgentStoppedOnTerminal(t *testing.T) {
	c, dir := atAgent(t, "Just go.", "FAKE_DEAF=1")
	c.see("$ make deploy")
	c.typed("\x03")
	c.see("interrupting the turn")
	c.typed("\x03")
	c.see("stopping the run")
	c.see("cancelled")
	c.exits(130)
	wantGone(t, dir)
}
