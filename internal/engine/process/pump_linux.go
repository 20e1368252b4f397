package process

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/meter"
	"github.com/spool-run/spool/internal/reactor"
)

const (
	eventSize       = 256 << 10 // most bytes of an event, and of a read
	pipeSize        = 1 << 20   // of a pipe that is used a lot, if we may
	smallPipeSize   = 256 << 10
	initialPipeSize = 64 << 10
	readsPerStream  = 4 // reads of a stream that has more before looking at the other
	// coalesce is how long output is gathered after the last event, at the
	// most. The first bytes after a silence never wait.
	coalesceTime = time.Millisecond
	// enough is how much is worth an event of its own: a writer that has
	// about that much together is not waited for.
	eventTarget = 192 << 10
	// firstCheck is when a tree that should end is looked at again.
	firstCount       = 2 * time.Millisecond
	maxCountInterval = 100 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { return new([eventSize]byte) }}

// The index of an event: that of a stream, or exitIndex.
const exitIndex = 2

// pump copies the output and the exit of a process into the log. One goroutine at a
// time runs it, and only that goroutine appends. The pump of an idle process rests, and
// has neither a thread nor a goroutine.
type pump struct {
	s       *session
	out     engine.Sink
	reactor *reactor.Reactor // the session's; other goroutines wake it
	streams [2]stream
	open    int // streams that have not ended

	exited    bool
	outcome   spool.Outcome
	limit     string // the time limit that stopped the run, for its outcome
	logClosed bool   // the log does not accept events any more

	started     time.Time
	lastOutput  time.Time // the last output
	lastEvent   time.Time // the last output event
	coalescing  bool      // whether to let more come before the next
	rate        float64   // bytes per nanosecond between the last two
	enoughBytes int       // how many bytes are not to be waited for

	meter   meter.Meter
	blocked bool // reading stopped because of the output limit

	requests      requests
	treeEmpty     bool      // the tree is known to be empty
	nextCount     time.Time // when to look at it
	countInterval time.Duration
	forcedClose   bool
	networkEnded  bool
}

// newPump takes over the output descriptors in f.
func newPump(s *session, f *files, out engine.Sink) *pump {
	p := &pump{s: s, out: out}
	p.streams[0] = stream{name: spool.Stdout, fd: f.stdout, capacity: initialPipeSize}
	p.streams[0].tty = f.stdoutTTY
	p.streams[1] = stream{name: spool.Stderr, fd: f.stderr, capacity: initialPipeSize}
	if s.input.tty {
		p.streams[0].name, p.streams[0].tty = spool.PTY, true
	}
	p.meter.Reset(&s.limits)
	s.reactor.Init(s.engine.poller)
	p.reactor = &s.reactor
	for i, st := range p.streams {
		if st.fd >= 0 {
			p.reactor.Add(st.fd, i)
			p.open++
		}
	}
	return p
}

// watch adds the descriptor that becomes ready at the exit.
func (p *pump) watch(pidfd int) { p.reactor.Add(pidfd, exitIndex) }

// begin says that the process runs from now on. The pump rests until the process does
// something: resume is called then.
func (p *pump) begin(resume func()) {
	p.started = time.Now()
	p.lastOutput = p.started
	if !p.reactor.Rest(p.nextTimer(), resume) { // it was woken already
		resume()
	}
}

// close closes everything the pump owns.
func (p *pump) close() {
	for i := range p.streams {
		p.closeStream(i)
	}
	p.reactor.Close()
}

// run runs until the process and its streams have ended, and reports true; or until
// there is nothing to do: then it reports false, and resume is called when there is.
func (p *pump) run(resume func()) bool {
	var events [3]reactor.Event
	for {
		p.handleTimers()
		if p.exited && p.open == 0 && !p.requests.killing && (p.treeEmpty || p.requests.killAt.IsZero()) {
			break
		}
		n, ok := p.reactor.Poll(events[:])
		if !ok {
			n = p.reactor.Look(events[:])
		}
		if n == 0 {
			if !ok && p.reactor.Rest(p.nextTimer(), resume) {
				return false
			}
			continue
		}
		var ready [3]bool
		for _, e := range events[:n] {
			ready[e.Index] = true
		}
		if !ready[exitIndex] {
			p.coalesce()
		}
		for i := range p.streams { // stdout first
			if !ready[i] {
				continue
			}
			for range readsPerStream {
				if p.read(i); !p.streams[i].lastReadFull {
					break
				}
			}
		}
		if ready[exitIndex] && p.handleExit() {
			break
		}
	}
	p.endNetwork()
	p.close()
	p.s.input.close()
	p.s.endWorkspace()
	p.s.finish(p.outcome)
	return true
}

// coalesce lets output gather: until the last event is a millisecond old, or
// about enough has come at the pace it came before, or the process has ended.
func (p *pump) coalesce() {
	for p.coalescing {
		since := time.Since(p.lastEvent)
		d := coalesceTime - since
		if p.rate > 0 {
			d = min(d, time.Duration(float64(p.enoughBytes)/p.rate)-since)
		}
		if d <= 0 {
			return
		}
		exit := -1
		if !p.exited {
			exit = p.s.tree.PidFD()
		}
		if p.reactor.Sleep(d, exit) {
			return
		}
	}
}

// read reads at most one event from a stream and returns the number of bytes.
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
	if st.lastReadFull && p.sinkRetains(size) { // so will this one, and the buffer can be the event's
		buf := make([]byte, size)
		n, ended = st.read(buf)
		p.publish(st, buf[:n], n == size)
	} else {
		buf := buffers.Get().(*[eventSize]byte)
		n, ended = st.read(buf[:size])
		p.publish(st, buf[:n], false)
		buffers.Put(buf)
	}
	st.lastReadFull = n == eventSize
	p.coalescing = n < size && n > 0
	p.enoughBytes = min(eventTarget, st.capacity/2)
	if n >= initialPipeSize/2 && !st.tty && !st.grown {
		st.grow()
	}
	if ended {
		p.closeStream(i)
		if p.open == 0 {
			p.flush()
		}
	}
	return n
}

// drainMax bounds what is read at the exit: more than a pipe holds was not
// written before it.
const drainMax = 1 << 20

// drain reads the bytes that are available now.
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

// handleExit reaps the leader, and reports whether the log has ended with it.
func (p *pump) handleExit() (all bool) {
	if p.exited {
		return false
	}
	for i := range p.streams {
		p.drain(i)
	}
	p.reactor.Remove(p.s.tree.PidFD())
	status, err := p.s.tree.Reap()
	p.s.account.Add(p.s.tree.Used())
	p.s.input.close()
	p.exited = true
	if p.open == 0 {
		p.endNetwork()
	}
	p.requests = p.s.takeRequests()
	p.appendNotices()
	if err != nil {
		p.outcome = spool.Outcome{Kind: spool.Unknown, Reason: err.Error()}
		p.append(p.outcome.Event())
		return false
	}
	p.outcome = outcomeOf(status)
	p.outcome.Reason = p.limit
	if limit := p.s.limits.MemoryBytes; limit > 0 && p.s.tree.MemoryKills() > 0 {
		p.ranOutOfMemory(limit)
	}
	p.metLimits()
	e := p.outcome.Event()
	if out, ok := p.out.(engine.Concluder); ok && !p.logClosed && p.open == 0 && p.s.endIfIdle() {
		if out.Conclude(e) {
			return true
		}
	}
	p.append(e)
	return false
}

// ranOutOfMemory notes that the kernel killed a process because of the limit of
// memory. It is the reason of the outcome unless the program coped with it, or
// another limit had ended it already.
func (p *pump) ranOutOfMemory(limit int64) {
	p.notice(NoticeOutOfMemory, limits.OutOfMemory(limit))
	if p.outcome.Code != 0 && p.outcome.Reason == "" {
		p.outcome.Reason = limits.OutOfMemory(limit)
	}
}

// metLimits notes the limits of processes and of processor time that the run met. A
// refused fork is the reason of the outcome as in [pump.ranOutOfMemory].
func (p *pump) metLimits() {
	refused := p.s.tree.Refused()
	for _, n := range limits.Met(&p.s.limits, refused, p.s.tree.Throttled()) {
		p.event(spool.KindNotice, n)
	}
	if refused > 0 && p.outcome.Code != 0 && p.outcome.Reason == "" {
		p.outcome.Reason = limits.OutOfProcesses(p.s.limits.Pids)
	}
}

// closeStream closes a stream.
func (p *pump) closeStream(i int) {
	st := &p.streams[i]
	if st.fd < 0 {
		return
	}
	p.reactor.Remove(st.fd)
	_ = unix.Close(st.fd)
	st.fd = -1
	p.open--
}
