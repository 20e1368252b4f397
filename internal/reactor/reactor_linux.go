// Package reactor waits for the descriptors of one goroutine.
//
// While there is activity, a reactor waits in a system call of its own, which
// holds a thread but wakes several times faster than the runtime's poller. After
// a millisecond without any it parks in the runtime's poller and holds no
// thread. A [Budget] bounds the threads that the reactors of an engine hold.
package reactor

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// busy is how long after some activity a reactor waits in a system call.
const busy = time.Millisecond

// maxBlocking is how many reactors of a budget do so at once. Until the runtime
// notices it, such a call also holds one of the processors that goroutines run on:
// half of them are left for what is to be done with the output.
var maxBlocking = int32(max(1, runtime.GOMAXPROCS(0)/2))

// past is a deadline that wakes a parked reactor.
var past = time.Unix(1, 0)

// Event is what happened to a descriptor of a set; its Fd is the index that
// the descriptor was added with.
type Event = unix.EpollEvent

// Budget counts the reactors that wait in a system call. The zero value is
// ready.
type Budget struct{ blocking atomic.Int32 }

func (b *Budget) take() bool {
	if b.blocking.Add(1) <= maxBlocking {
		return true
	}
	b.blocking.Add(-1)
	return false
}

func (b *Budget) give() { b.blocking.Add(-1) }

// Reactor waits for the descriptors of a set. One goroutine owns it and calls
// its methods; any may call [Reactor.Wake].
type Reactor struct {
	Set
	budget *Budget
	active time.Time // the last event

	// gate is in the runtime's poller, made by the first Park, and watches the
	// set during a Park only: the runtime's poller would otherwise wake up for
	// every event that Poll waits for, too.
	gate Set
	conn syscall.RawConn // of gate

	mu    sync.Mutex
	file  *os.File  // of gate, and owns it
	woken bool      // since the last Acknowledge
	armed time.Time // the deadline of file
}

// Init makes the reactor ready. It owns the set from then on.
func (r *Reactor) Init(s Set, b *Budget) { r.Set, r.budget, r.active = s, b, time.Now() }

// Poll waits for events in a system call, if there was activity a moment ago.
// It reports whether the caller is to look at its state, events or not; if not,
// it parks.
func (r *Reactor) Poll(events []Event) (n int, ok bool) {
	if time.Since(r.active) >= busy || !r.budget.take() {
		return 0, false
	}
	n, err := unix.EpollWait(r.fd, events, int(busy/time.Millisecond))
	r.budget.give()
	if err == nil && n > 0 {
		r.active = time.Now()
		return n, true
	}
	return 0, err == unix.EINTR
}

// Park waits for events until the deadline, if it is not zero, or [Reactor.Wake],
// and holds no thread meanwhile. It returns 0 if there are none.
func (r *Reactor) Park(events []Event, deadline time.Time) int {
	if !r.arm(deadline) {
		return 0
	}
	if n, err := unix.EpollWait(r.fd, events, 0); err == nil && n > 0 {
		r.active = time.Now()
		return n
	}
	r.watch(true)
	defer r.watch(false)
	var n int
	err := r.conn.Read(func(uintptr) bool {
		var err error
		n, err = unix.EpollWait(r.fd, events, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	if err != nil || n <= 0 { // the deadline, or Wake
		return 0
	}
	r.active = time.Now()
	return n
}

// arm sets the deadline of a Park. It reports false if the reactor was woken.
func (r *Reactor) arm(deadline time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.woken {
		return false
	}
	if r.file == nil {
		r.openGate()
	}
	if !r.armed.Equal(deadline) {
		r.armed = deadline
		_ = r.file.SetReadDeadline(deadline)
	}
	return true
}

// openGate puts the gate into the runtime's poller. Without a descriptor for one
// it puts the set there.
func (r *Reactor) openGate() {
	fd := r.fd
	if g, err := NewSet(); err == nil {
		if g.Add(r.fd, 0) == nil {
			r.gate, fd = g, g.fd
		} else {
			g.Close()
		}
	}
	r.poll(fd)
}

// poll puts a descriptor into the runtime's poller.
func (r *Reactor) poll(fd int) {
	_ = unix.SetNonblock(fd, true) // cannot fail on a descriptor we own
	r.file = os.NewFile(uintptr(fd), "reactor")
	r.conn, _ = r.file.SyscallConn() // cannot fail on an open file
}

// watch says whether the gate watches the set.
func (r *Reactor) watch(on bool) {
	if !r.gate.Open() {
		return
	}
	var events uint32
	if on {
		events = unix.EPOLLIN
	}
	r.gate.Change(r.fd, 0, events)
}

// Wake ends the Park that is under way, or the next. A Poll ends by itself.
func (r *Reactor) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = true
	if r.file != nil {
		r.armed = past
		_ = r.file.SetReadDeadline(past) // fails only if the reactor is closed
	}
}

// Acknowledge says that the owner is about to look at the state for which it
// may have been woken.
func (r *Reactor) Acknowledge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = false
}

// Sleep waits for d, or until the descriptor fd has input, if the budget
// allows to watch it. It reports whether fd has. If fd is negative there is
// none.
func (r *Reactor) Sleep(d time.Duration, fd int) bool {
	if fd < 0 || !r.budget.take() {
		time.Sleep(d)
		return false
	}
	defer r.budget.give()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(int64(d))
	n, _ := unix.Ppoll(fds, &timeout, nil) // if it is interrupted, the caller looks again
	return n > 0
}

// Close closes the set.
func (r *Reactor) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
	}
	if r.file == nil || r.gate.Open() {
		r.Set.Close()
	}
}
