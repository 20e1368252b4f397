package keeper

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// relieveAfter is how long the goroutine that reads may be at something else.
// What came meanwhile, a stop maybe, waits for so long at most.
const relieveAfter = 2 * time.Millisecond

// relief sees to it that somebody reads while a start takes long. The clock is
// the kernel's: to set one of the runtime's may wake a thread, and the start
// competes with that for the processor.
type relief struct {
	file *os.File // a timer
	fd   int      // the same
	wg   sync.WaitGroup

	mu       sync.Mutex
	busy     bool // between begin and end
	relieved bool // since begin
	relieve  func()
}

// newRelief returns one that calls relieve when something takes long.
func newRelief(relieve func()) (*relief, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	r := &relief{file: os.NewFile(uintptr(fd), "timer"), fd: fd, relieve: relieve}
	r.wg.Go(r.watch)
	return r, nil
}

// watch waits for the timer until it is closed.
func (r *relief) watch() {
	var ticks [8]byte
	for {
		if _, err := r.file.Read(ticks[:]); err != nil {
			return
		}
		r.mu.Lock()
		if r.busy && !r.relieved {
			r.relieved = true
			r.relieve() // under mu: who is at it must not read again before
		}
		r.mu.Unlock()
	}
}

// begin says that whoever reads is going to do something else. It reports
// whether that is in order: not if somebody else has not ended.
func (r *relief) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy || r.set(relieveAfter) != nil {
		return false
	}
	r.busy, r.relieved = true, false
	return true
}

// end says that it is done.
func (r *relief) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	if !r.relieved {
		_ = r.set(0) // at worst somebody is relieved in vain
	}
}

// set has the timer tick once after so long, or not at all.
func (r *relief) set(d time.Duration) error {
	return unix.TimerfdSettime(r.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

func (r *relief) close() {
	_ = r.file.Close()
	r.wg.Wait()
}
