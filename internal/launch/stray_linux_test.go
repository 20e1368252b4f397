package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// outside makes a control group that is not of a launcher.
func outside(t *testing.T) string {
	t.Helper()
	r, err := findRoots()
	if err != nil || r.v2 == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("no control groups here: %v", err)
		}
		t.Skipf("no control groups here: %v", err)
	}
	dir := filepath.Join(r.v2, "stray-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("make a control group: %v", err)
		}
		t.Skipf("make a control group: %v", err)
	}
	t.Cleanup(func() {
		if err := removeGroup(dir, time.Now().Add(sweepTime)); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "cgroup.procs")
}

// TestKillOutsideTheGroup checks that processes which moved to another control
// group are killed with their tree.
func TestKillOutsideTheGroup(t *testing.T) {
	for name, script := range map[string]string{
		"leader":     "echo 0 >GROUP && echo $$; exec sleep 1000",
		"child":      "sh -c 'echo 0 >GROUP && echo $$; exec sleep 1000'; :",
		"grandchild": "setsid sh -c 'echo 0 >GROUP; sleep 1000 & echo $!; wait'; :",
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, TreeCgroup)
			script = strings.ReplaceAll(script, "GROUP", outside(t))
			tree, line := spawn(t, l, script)
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatalf("the script said %q", line)
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := tree.Kill(); err != nil {
				t.Error(err)
			}
			for what, fd := range map[string]int{"leader": tree.PidFD(), "process outside": fd} {
				fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				if n, err := unix.Poll(fds, 5000); n != 1 {
					t.Errorf("the %s lives: %v", what, err)
					_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				}
			}
			if tree.Strays() == 0 {
				t.Error("no process was found outside of the group")
			}
			if _, err := tree.Reap(); err != nil {
				t.Error(err)
			}
			tree.Release()
		})
	}
}
