//go:build amd64 || arm64

package isolate

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// thread is a thread of this process that has the filter of a sandbox, so that the
// programs which it starts inherit the filter. To install it takes the kernel about
// as long as all else that a start in a sandbox needs more than one outside.
//
// The filter refuses what puts a new process into its control group and its
// namespaces, too, unless the call comes with a key: a number that the filter and
// this process have, and the program of a run has not.
type thread struct {
	key    [2]uintptr
	id     int  // of the thread
	inside bool // what it clones begins in the PID namespace of the sandbox

	work  chan func()
	quit  chan struct{}
	ended chan struct{}
}

// newThread starts a thread for programs in a sandbox with a first process.
func newThread(filter seccomp.Program, key *seccomp.Key, first int) (*thread, error) {
	t := &thread{key: key.Args(), work: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	ready := make(chan error)
	go t.begin(filter, first, ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// begin makes a thread that of the sandbox. The main thread stays as it is: it is the one
// that /proc shows for the process, and it cannot end. So does a thread that has started
// processes: one that asked for a signal at the death of its parent
// (PR_SET_PDEATHSIG) gets it when the thread ends.
func (t *thread) begin(filter seccomp.Program, first int, ready chan<- error) {
	runtime.LockOSThread()
	parent, err := hasChildren()
	if err != nil {
		ready <- err
		runtime.UnlockOSThread()
		close(t.ended)
		return
	}
	if parent || unix.Gettid() == unix.Getpid() {
		another := make(chan error)
		go t.begin(filter, first, another)
		ready <- <-another
		runtime.UnlockOSThread()
		return
	}
	defer close(t.ended) // the thread ends with the goroutine, which stays locked to it
	t.id = unix.Gettid()
	t.inside = unix.Setns(first, unix.CLONE_NEWPID) == nil
	err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = filter.Install()
	}
	ready <- err
	if err == nil {
		t.serve()
	}
}

// hasChildren reports whether this thread has started processes that are still there.
func hasChildren() (bool, error) {
	b, err := os.ReadFile("/proc/thread-self/children")
	if err != nil {
		return false, fmt.Errorf("look for the children of a thread: %w", err)
	}
	return len(b) > 0, nil
}

// serve calls functions until the thread is to end.
func (t *thread) serve() {
	for {
		select {
		case f := <-t.work:
			f()
		case <-t.quit:
			return
		}
	}
}

// do has the thread call a function, or another one if this one has ended. The function
// may end the thread.
func (t *thread) do(f func()) {
	select {
	case t.work <- f:
	case <-t.ended:
		go f()
	}
}

// over reports whether the thread has ended.
func (t *thread) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// here reports whether the caller is on the thread. Another one may have its number, but
// not before it is over.
func (t *thread) here() bool { return !t.over() && unix.Gettid() == t.id }

// close ends the thread.
func (t *thread) close() {
	close(t.quit)
	<-t.ended
}
