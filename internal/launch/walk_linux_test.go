package launch

import (
	"os/exec"
	"syscall"
	"testing"
)

// A search finds the mark of a process that executes a program at that moment:
// then the process has no environment for some microseconds.
func TestMarkOfAProcessThatExecutes(t *testing.T) {
	t.Parallel()
	const mark = "owner.tree"
	cmd := exec.Command("/bin/sh", "-c", `exec /bin/sh -c "$0" "$0"`, `exec /bin/sh -c "$0" "$0"`)
	cmd.Env = marked(cmd.Environ(), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for i := range 5_000 {
		if got := markOf(cmd.Process.Pid); got != mark {
			t.Fatalf("search %d: the mark is %q", i, got)
		}
	}
}
