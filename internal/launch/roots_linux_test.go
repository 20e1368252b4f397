package launch

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// Where the main thread is for a moment, to start a process in the group of a tree, is not
// where this process makes its groups.
func TestRootsWhileTheMainThreadForks(t *testing.T) {
	want, err := findRoots()
	if err != nil {
		t.Fatal(err)
	}
	if want.pids == "" {
		skiptest.Missing(t, "the v1 hierarchy of the pids controller")
	}
	group := filepath.Join(want.pids, "spool-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		skiptest.Missing(t, "control groups that can be made: %v", err)
	}
	main := strconv.Itoa(os.Getpid())
	move := func(to string) {
		t.Helper()
		if err := write(filepath.Join(to, "tasks"), main); err != nil {
			t.Fatal(err)
		}
	}
	move(group)
	defer func() {
		move(want.pids)
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	}()
	onOtherThread(func() {
		got, err := findRoots()
		if err != nil || got != want {
			t.Errorf("roots are %+v, %v, want %+v", got, err, want)
		}
	})
}

// onOtherThread calls f on a thread that is not the main thread.
func onOtherThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // on another thread: this one is taken
		defer close(done)
		f()
	}()
	<-done
}
