package keeper

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stallAfter is how long a function may run on the reading goroutine before
// another goroutine takes over reading. A message that arrives meanwhile, such
// as a stop of another run, waits at most this long.
const stallAfter = 2 * time.Millisecond

// stallTimer calls a function when an operation takes longer than stallAfter.
// It uses a timer of the kernel: setting one of the Go runtime may wake a
// thread, which competes with the start of a process for the CPU.
type stallTimer struct {
	file    *os.File // the timer
	fd      int      // its descriptor
	stalled func()
	wg      sync.WaitGroup

	mu    sync.Mutex
	state stallState
}

// stallState is the state of the operation that a stallTimer watches.
type stallState int

const (
	stallIdle    stallState = iota // no operation
	stallRunning                   // begin was called
	stallFired                     // the operation takes long; stalled was called
)

// newStallTimer returns a timer that calls stalled.
func newStallTimer(stalled func()) (*stallTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	t := &stallTimer{file: os.NewFile(uintptr(fd), "timer"), fd: fd, stalled: stalled}
	t.wg.Go(t.watch)
	return t, nil
}

// watch waits for the timer until it is closed.
func (t *stallTimer) watch() {
	var ticks [8]byte
	for {
		if _, err := t.file.Read(ticks[:]); err != nil {
			return
		}
		t.mu.Lock()
		if t.state == stallRunning {
			t.state = stallFired
			t.stalled() // under mu: end must not return before
		}
		t.mu.Unlock()
	}
}

// begin starts the timer for an operation. It reports false if an earlier
// operation has not ended.
func (t *stallTimer) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != stallIdle || t.set(stallAfter) != nil {
		return false
	}
	t.state = stallRunning
	return true
}

// end ends the operation.
func (t *stallTimer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == stallRunning {
		_ = t.set(0) // a failure costs one needless wake of watch
	}
	t.state = stallIdle
}

// set has the timer fire once after d, or not at all if d is zero.
func (t *stallTimer) set(d time.Duration) error {
	return unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

func (t *stallTimer) close() {
	_ = t.file.Close()
	t.wg.Wait()
}
