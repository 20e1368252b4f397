// Package reactor waits for the descriptors of one goroutine.
//
// While there is activity, a reactor waits in a system call of its own, which
// holds a thread but wakes several times faster than the runtime's poller. After
// a millisecond without any it parks: then the [Poller] that it shares with others
// watches its descriptors, and it holds no thread. The poller also bounds the
// threads that its reactors hold. Who has nothing else to do rests: it holds no
// goroutine either.
package reactor

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// busy is how long after some activity a reactor waits in a system call.
	busy = time.Millisecond
	// retry is after how long a parked reactor looks at its descriptors if the
	// kernel does not let the poller watch them.
	retry = 10 * time.Millisecond
	// Max is how many descriptors a reactor watches at the most.
	Max = 8
)

// Event is what happened to a descriptor.
type Event struct {
	Index  int    // that the descriptor was added with
	Events uint32 // as epoll has them
}

// Reactor waits for descriptors. One goroutine owns it and waits; any may call
// [Reactor.Wake] and, if the owner sees to it that the descriptor stays open,
// [Reactor.Change].
type Reactor struct {
	poller *Poller
	active time.Time     // the last event
	wake   chan struct{} // ends a Park; has room for one; nil before the first
	timer  *time.Timer   // wakes it at the deadline; nil before the first deadline

	mu      sync.Mutex
	watched []watched
	number  int32  // in the poller; zero before the first Rest
	resume  func() // ends the Rest; nil while it does not rest
	woken   bool   // since the last Rest
}

// watched is a descriptor. The poller reports it once after it was armed: it has
// nothing to do with what happens while the reactor does not rest.
type watched struct {
	fd     int
	index  int32
	events uint32
	added  bool // the poller knows it
	armed  bool // and will report it
}

// Init makes the reactor ready. It must be closed.
func (r *Reactor) Init(p *Poller) {
	r.poller, r.active = p, time.Now()
}

// Add watches a descriptor for input. Its events carry the index. There may be [Max] of
// them.
func (r *Reactor) Add(fd, index int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = append(r.watched, watched{fd: fd, index: int32(index), events: unix.EPOLLIN})
}

// Change watches a descriptor for other events. With none, only its end is
// reported.
func (r *Reactor) Change(fd int, events uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(fd); i >= 0 {
		r.watched[i].events, r.watched[i].armed = events, false
		if r.resume != nil {
			r.arm(&r.watched[i])
		}
	}
}

// Remove stops watching a descriptor, before it is closed.
func (r *Reactor) Remove(fd int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(fd); i >= 0 {
		r.forget(&r.watched[i])
		r.watched = slices.Delete(r.watched, i, i+1)
	}
}

func (r *Reactor) find(fd int) int {
	return slices.IndexFunc(r.watched, func(w watched) bool { return w.fd == fd })
}

// forget has the poller forget a descriptor. Closing it is not enough: a child that
// is being forked may hold a copy until it executes its program.
func (r *Reactor) forget(w *watched) {
	if w.added {
		_ = unix.EpollCtl(r.poller.fd, unix.EPOLL_CTL_DEL, w.fd, nil) // cannot fail on one that was added
	}
}

// Poll waits for events in a system call, if there was activity a moment ago.
// It reports whether the caller is to look at its state, events or not; if not,
// it parks or rests.
func (r *Reactor) Poll(events []Event) (n int, ok bool) {
	if time.Since(r.active) >= busy || !r.poller.take() {
		return 0, false
	}
	n, err := r.look(events, busy)
	r.poller.give()
	return n, n > 0 || err == unix.EINTR
}

// Look returns the events that there are now, or 0.
func (r *Reactor) Look(events []Event) int {
	n, _ := r.look(events, 0) // if it is interrupted, the caller looks again
	return n
}

// look returns what has happened, for which it waits at most a time.
func (r *Reactor) look(events []Event, wait time.Duration) (n int, err error) {
	var fds [Max]unix.PollFd
	var indices [Max]int32
	r.mu.Lock()
	for i, w := range r.watched {
		fds[i], indices[i] = unix.PollFd{Fd: int32(w.fd), Events: int16(w.events)}, w.index
	}
	count := len(r.watched)
	r.mu.Unlock()
	if _, err := unix.Poll(fds[:count], int(wait/time.Millisecond)); err != nil {
		return 0, err
	}
	for i := range fds[:count] {
		if happened := fds[i].Revents; happened != 0 && n < len(events) {
			events[n] = Event{int(indices[i]), uint32(happened)}
			n++
		}
	}
	if n > 0 {
		r.active = time.Now()
	}
	return n, nil
}

// Park waits for events until the deadline, if it is not zero, or [Reactor.Wake],
// and holds no thread meanwhile. It returns 0 if there are none.
func (r *Reactor) Park(events []Event, deadline time.Time) int {
	if n := r.Look(events); n > 0 {
		return n
	}
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	if r.Rest(deadline, func() { r.wake <- struct{}{} }) {
		<-r.wake
	}
	return r.Look(events)
}

// Rest has resume called once, by any goroutine, when there are events, at the deadline,
// if it is not zero, or after [Reactor.Wake]. resume must not block. It reports false,
// and resume is not called, if the reactor was woken since the last Rest: the caller
// looks at its state. Otherwise the caller leaves the reactor to the one who resumes.
func (r *Reactor) Rest(deadline time.Time, resume func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.woken {
		r.woken = false
		return false
	}
	if r.number == 0 {
		r.number = r.poller.add(r)
	}
	r.resume = resume
	for i := range r.watched {
		if !r.arm(&r.watched[i]) {
			if soon := time.Now().Add(retry); deadline.IsZero() || soon.Before(deadline) {
				deadline = soon
			}
		}
	}
	switch {
	case deadline.IsZero():
	case r.timer == nil:
		r.timer = time.AfterFunc(time.Until(deadline), r.Wake)
	default:
		r.timer.Reset(time.Until(deadline))
	}
	return true
}

// arm has the poller watch a descriptor. Callers hold r.mu, for which an event waits
// that follows at once.
func (r *Reactor) arm(w *watched) bool {
	if w.armed {
		return true
	}
	op := unix.EPOLL_CTL_ADD
	if w.added {
		op = unix.EPOLL_CTL_MOD
	}
	e := unix.EpollEvent{Events: w.events | unix.EPOLLONESHOT, Fd: w.index, Pad: r.number}
	w.armed = unix.EpollCtl(r.poller.fd, op, w.fd, &e) == nil
	w.added = w.added || w.armed
	return w.armed
}

// fire is called by the poller when something has happened.
func (r *Reactor) fire(index int32) {
	r.mu.Lock()
	for i := range r.watched {
		if w := &r.watched[i]; w.index == index {
			w.armed = false
		}
	}
	r.mu.Unlock()
	r.Wake()
}

// Wake ends the Park or the Rest that is under way, or the next. A Poll ends by itself.
func (r *Reactor) Wake() {
	r.mu.Lock()
	resume := r.resume
	r.resume = nil
	r.woken = resume == nil
	if resume != nil && r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	if resume != nil {
		resume()
	}
}

// Sleep waits for d, or until the descriptor fd has input, if the poller
// allows to watch it. It reports whether fd has. If fd is negative there is
// none.
func (r *Reactor) Sleep(d time.Duration, fd int) bool {
	if fd < 0 || !r.poller.take() {
		time.Sleep(d)
		return false
	}
	defer r.poller.give()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	timeout := unix.NsecToTimespec(int64(d))
	n, _ := unix.Ppoll(fds, &timeout, nil) // if it is interrupted, the caller looks again
	return n > 0
}

// Close ends the reactor, before its descriptors are closed.
func (r *Reactor) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.watched {
		r.forget(&r.watched[i])
	}
	r.watched = nil
	if r.number != 0 {
		r.poller.remove(r.number)
	}
	if r.timer != nil {
		r.timer.Stop()
	}
}
