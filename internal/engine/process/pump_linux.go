package process

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/meter"
)

const (
	eventSize = 256 << 10 // most bytes of an event, and of a read
	pipeSize  = 1 << 20   // of a pipe that is used a lot, if we may
	pipeLess  = 256 << 10
	pipeStart = 64 << 10
	burst     = 4 // reads of a stream that has more before looking at the other
	// coalesce is how long output is gathered after the last event, at the
	// most. The first bytes after a silence never wait.
	coalesce = time.Millisecond
	// enough is how much is worth an event of its own: a writer that has
	// about that much together is not waited for.
	enough = 192 << 10
	// busy is how long after some activity the pump waits in a system
	// call, which costs a thread but wakes five times faster than the
	// runtime's poller.
	busy = time.Millisecond
	// maxBlocking bounds those threads over all processes of an engine.
	maxBlocking = 16
	// firstCheck is when a tree that should end is looked at again.
	firstCheck = 2 * time.Millisecond
	lastCheck  = 100 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { return new([eventSize]byte) }}

// What an epoll event is about: a stream by its index, or the exit.
const exitIndex = 2

// pump moves what a process produces into the log. It is the only one who
// appends: one goroutine that owns the streams and the exit. An idle process
// has its pump parked in the runtime's poller and costs no thread.
type pump struct {
	s       *session
	out     engine.Sink
	epfd    int
	wake    *os.File        // epfd in the runtime's poller, made when first parked
	conn    syscall.RawConn // of wake
	streams [2]stream
	open    int // streams that have not ended

	exited  bool
	outcome spool.Outcome
	refused bool // the log takes no more

	started   time.Time
	active    time.Time // the last event of any kind
	output    time.Time // the last output
	published time.Time // the last output event
	gather    bool      // whether to let more come before the next
	rate      float64   // bytes per nanosecond between the last two
	worth     int       // how many bytes are not to be waited for

	meter   meter.Meter
	blocked bool // reading stopped because of the output limit

	req    requests
	gone   bool      // the tree is known to be empty
	check  time.Time // when to look at it
	pause  time.Duration
	forced bool
}

// newPump takes over the output descriptors in f.
func newPump(s *session, f *files, out engine.Sink) (*pump, error) {
	p := &pump{s: s, out: out}
	p.streams[0] = stream{name: spool.Stdout, fd: f.stdout, holds: pipeStart}
	p.streams[1] = stream{name: spool.Stderr, fd: f.stderr, holds: pipeStart}
	if s.input.tty {
		p.streams[0].name, p.streams[0].tty = spool.PTY, true
	}
	p.meter.Reset(&s.limits)
	if f.epfd < 0 {
		if err := f.watch(); err != nil {
			return nil, fmt.Errorf("watch the output: %w", err)
		}
	}
	p.epfd = f.epfd
	for _, st := range p.streams {
		if st.fd >= 0 {
			p.open++
		}
	}
	return p, nil
}

func watch(epfd, fd, index int) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// watch adds the descriptor that tells of the exit.
func (p *pump) watch(pidfd int) error { return watch(p.epfd, pidfd, exitIndex) }

// close closes everything the pump owns.
func (p *pump) close() {
	for i := range p.streams {
		p.end(i)
	}
	if p.wake != nil {
		_ = p.wake.Close()
	} else {
		_ = unix.Close(p.epfd)
	}
}

// run is the life of a process.
func (p *pump) run() {
	p.started = time.Now()
	p.active, p.output = p.started, p.started
	var events [3]unix.EpollEvent
	for {
		p.tend()
		if p.exited && p.open == 0 && (p.gone || p.req.killAt.IsZero()) {
			break
		}
		n := p.wait(events[:])
		if n == 0 {
			continue
		}
		var ready [3]bool
		for _, e := range events[:n] {
			ready[e.Fd] = true
		}
		if !ready[exitIndex] {
			p.settle()
		}
		for i := range p.streams { // stdout first
			if !ready[i] {
				continue
			}
			for range burst {
				if p.read(i); !p.streams[i].whole {
					break
				}
			}
		}
		if ready[exitIndex] && p.exit() {
			break
		}
	}
	p.close()
	p.s.input.close()
	p.s.end(p.outcome)
}

// wait returns what is ready, or nothing when it is time to tend to something.
func (p *pump) wait(events []unix.EpollEvent) int {
	if time.Since(p.active) < busy && p.mayBlock() {
		n, err := unix.EpollWait(p.epfd, events, int(busy/time.Millisecond))
		p.s.eng.blocking.Add(-1)
		if err == nil && n > 0 {
			p.active = time.Now()
			return n
		}
		if err == unix.EINTR {
			return 0
		}
	}
	if p.wake == nil {
		p.register()
	}
	if !p.s.arm(p.wake, p.deadline()) {
		return 0
	}
	var n int
	err := p.conn.Read(func(fd uintptr) bool {
		var err error
		n, err = unix.EpollWait(int(fd), events, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	if err != nil || n <= 0 { // a deadline, ours or somebody's poke
		return 0
	}
	p.active = time.Now()
	return n
}

// register hands the epoll descriptor to the runtime's poller.
func (p *pump) register() {
	_ = unix.SetNonblock(p.epfd, true) // cannot fail on a descriptor we own
	p.wake = os.NewFile(uintptr(p.epfd), "pump")
	p.conn, _ = p.wake.SyscallConn() // cannot fail on an open file
}

// mayBlock reports whether the pump may wait in a system call of its own, and
// counts it if so.
func (p *pump) mayBlock() bool {
	if p.s.eng.blocking.Add(1) <= maxBlocking {
		return true
	}
	p.s.eng.blocking.Add(-1)
	return false
}

// settle lets output gather: until the last event is a millisecond old, or
// about enough has come at the pace it came before, or the process has ended.
func (p *pump) settle() {
	for p.gather {
		since := time.Since(p.published)
		d := coalesce - since
		if p.rate > 0 {
			d = min(d, time.Duration(float64(p.worth)/p.rate)-since)
		}
		if d <= 0 {
			return
		}
		if p.exited || !p.mayBlock() {
			time.Sleep(d)
			return
		}
		exit := []unix.PollFd{{Fd: int32(p.s.tree.PidFD()), Events: unix.POLLIN}}
		timeout := unix.NsecToTimespec(int64(d))
		n, _ := unix.Ppoll(exit, &timeout, nil) // interrupted: look again
		p.s.eng.blocking.Add(-1)
		if n > 0 {
			return
		}
	}
}

// read moves one event's worth of a stream, and returns how many bytes that
// were.
func (p *pump) read(i int) int {
	st := &p.streams[i]
	if st.fd < 0 {
		return 0
	}
	size := eventSize
	if room := p.meter.Room(); room < eventSize {
		size = int(room)
		if size == 0 {
			if waiting, err := unix.IoctlGetInt(st.fd, unix.TIOCINQ); err == nil && waiting > 0 {
				p.block()
				return 0
			}
			size = 1 // the end of the stream, most likely
		}
	}
	var n int
	var ended bool
	if st.whole && p.keeps(size) { // so will this one, and the buffer can be the event's
		buf := make([]byte, size)
		n, ended = st.read(buf)
		p.publish(st, buf[:n], n == size)
	} else {
		buf := buffers.Get().(*[eventSize]byte)
		n, ended = st.read(buf[:size])
		p.publish(st, buf[:n], false)
		buffers.Put(buf)
	}
	st.whole = n == eventSize
	p.gather = n < size && n > 0
	p.worth = min(enough, st.holds/2)
	if n >= pipeStart/2 && !st.tty && !st.grown {
		st.grow()
	}
	if ended {
		p.end(i)
		if p.open == 0 {
			p.flush()
		}
	}
	return n
}

// drainMax bounds what is read at the exit: more than a pipe holds was not
// written before it.
const drainMax = 1 << 20

// drain reads what is there now.
func (p *pump) drain(i int) {
	for got := 0; got < drainMax; {
		blocked := p.blocked
		if blocked && !hungUp(p.streams[i].fd) {
			return
		}
		n := p.read(i)
		if n == 0 && blocked == p.blocked {
			return
		}
		got += n
	}
}

// exit collects the leader, and reports whether that was all.
func (p *pump) exit() (all bool) {
	if p.exited {
		return false
	}
	for i := range p.streams {
		p.drain(i)
	}
	_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, p.s.tree.PidFD(), nil)
	status, err := p.s.tree.Reap()
	p.s.input.close()
	p.exited = true
	p.req = p.s.take()
	p.notices()
	if err != nil {
		p.outcome = spool.Outcome{Kind: spool.Unknown, Reason: err.Error()}
		p.event(spool.KindFailed, spool.Failure{Reason: err.Error(), Unknown: true})
		return false
	}
	exit := exitStatus(status)
	p.outcome = spool.Outcome{Kind: spool.Exited, Code: exit.Code, Signal: exit.Signal}
	e := spool.Event{Kind: spool.KindExited, Data: appendExit(nil, exit)}
	if out, ok := p.out.(engine.Concluder); ok && !p.refused && p.open == 0 && p.s.over() {
		if out.Conclude(e) {
			return true
		}
	}
	p.append(e)
	return false
}

// end closes a stream.
func (p *pump) end(i int) {
	st := &p.streams[i]
	if st.fd < 0 {
		return
	}
	// Closing alone does not do it: a child that is being forked right
	// now may hold a copy until it executes.
	_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, st.fd, nil)
	_ = unix.Close(st.fd)
	st.fd = -1
	p.open--
}
