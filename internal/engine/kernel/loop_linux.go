package kernel

import (
	"bytes"
	"runtime"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/meter"
	"github.com/spool-run/spool/internal/reactor"
)

const (
	readSize       = 256 << 10 // one read, and the most bytes of an output event
	pipeSize       = 1 << 20   // of a pipe that is used a lot, if we may
	smallPipeSize  = 256 << 10
	readsPerStream = 8 // reads before looking at anything else
	// drainMax bounds what is read to settle a turn: more than a pipe
	// holds was not written before the message that ended it.
	drainMax = pipeSize + readSize
)

// The indices of events.
const (
	outIndex = iota
	errIndex
	exitIndex
	ctlIndex
	wakeIndex
	indices
)

var buffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// stream is one of the two outputs.
type stream struct {
	name    spool.Stream
	fd      int // -1 once it ended
	grown   bool
	blocked bool // not read, because of the output limit

	// partial is the beginning of a character at the end of what was read. It
	// waits for the rest of the character, but not for long: see flushPartial.
	partial   [utf8.UTFMax - 1]byte
	partials  int       // bytes of it
	partialAt time.Time // since when it waits
}

// PartialWait is how long the beginning of a character waits for its rest.
const PartialWait = 50 * time.Millisecond

// adopt makes a ready interpreter that of this run.
func (s *session) adopt(p *interpreter) {
	s.streams = [2]stream{{name: spool.Stdout, fd: p.out}, {name: spool.Stderr, fd: p.err}}
	for fd, index := range map[int]int{p.out: outIndex, p.err: errIndex, p.ctl: ctlIndex, p.tree.PidFD(): exitIndex} {
		s.reactor.Add(fd, index)
	}
	s.interp = p
	s.trace.record(started, dict{"pid": p.tree.Pid(), "executable": p.executable, "version": p.version, "forked": p.forked})
	s.outgoing = nil
	s.output.Reset(&s.limits)
	s.mu.Lock()
	s.pid, s.group = p.tree.Pid(), p.tree.Group()
	s.python = [2]string{p.executable, p.version}
	s.mu.Unlock()
	s.engine.guardGroup(p.tree.Group())
	s.attachNetwork(p)
}

// loop runs until the run has ended.
func (s *session) loop() {
	s.own.Lock() // and not unlocked after the end
	var events [indices]reactor.Event
	for {
		s.handleRequests()
		if s.turns.Err() != nil && !s.logClosed {
			s.handleClosedLog()
		}
		s.handleTimers(time.Now())
		s.startNext()
		s.write()
		if s.finished() {
			break
		}
		var ready [indices]bool
		for _, e := range events[:s.wait(events[:])] {
			ready[e.Index] = true
		}
		if ready[wakeIndex] {
			var b [8]byte
			_, _ = unix.Read(s.wakeFD, b[:]) // it only had to wake us
		}
		if s.interp == nil {
			continue
		}
		if ready[ctlIndex] || ready[exitIndex] {
			// Output written before a message is in the pipes by now.
			s.drainStreams()
			s.readMessages(ready[exitIndex])
		}
		for i := range s.streams {
			for n := readsPerStream; ready[i] && n > 0 && s.read(i) > 0; n-- {
			}
		}
		if ready[exitIndex] && s.interp != nil {
			s.handleExit()
		}
	}
	s.finish()
}

// wait returns the number of ready descriptors, or zero at the next timer. The
// loop owns nothing meanwhile.
func (s *session) wait(events []reactor.Event) int {
	s.own.Unlock()
	runtime.Gosched() // readers that the last events woke run on this thread before it waits
	n, ok := s.reactor.Poll(events)
	s.own.Lock()
	if ok {
		return n
	}
	next := s.nextTimer()
	s.parked, s.wakeAt = true, next
	s.own.Unlock()
	n = s.reactor.Park(events, next)
	s.own.Lock()
	s.parked = false
	return n
}

// read reads at most one event from a stream and returns the number of bytes.
func (s *session) read(i int) int {
	st := &s.streams[i]
	if st.fd < 0 || st.blocked {
		return 0
	}
	// What waits for the rest of a character is yet to be counted.
	waits := int64(s.streams[0].partials + s.streams[1].partials)
	size := min(readSize, s.output.Room()-waits)
	if size <= 0 && waits > 0 {
		s.flushPartial()
		size = s.output.Room()
	}
	if size <= 0 {
		s.block()
		return 0
	}
	buf := buffers.Get().(*[readSize]byte)
	defer buffers.Put(buf)
	for {
		have := copy(buf[:], st.partial[:st.partials])
		n, err := unix.Read(st.fd, buf[have:min(readSize, int64(have)+size)])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0
		case err != nil || n == 0:
			s.endStream(i)
			return 0
		}
		if n >= 32<<10 && !st.grown {
			st.grow()
		}
		if other := &s.streams[1-i]; other.partials > 0 {
			s.flushPartialOf(other) // what was written later must not overtake it
		}
		b := buf[:have+n]
		rest := meter.PartialRune(b)
		st.partials = copy(st.partial[:], b[len(b)-rest:])
		if rest > 0 {
			st.partialAt = time.Now()
			b = b[:len(b)-rest]
		}
		if len(b) > 0 {
			s.publish(st.name, b)
		}
		return n
	}
}

// flushPartial publishes the beginnings of characters whose rest does not come:
// before a message of the interpreter, at the end of a stream and of a turn, and
// after PartialWait.
func (s *session) flushPartial() {
	for i := range s.streams {
		s.flushPartialOf(&s.streams[i])
	}
}

func (s *session) flushPartialOf(st *stream) {
	if n := st.partials; n > 0 {
		st.partials = 0
		s.publish(st.name, st.partial[:n])
	}
}

// grow enlarges a pipe that is used a lot, if the system lets us.
func (st *stream) grow() {
	st.grown = true
	for _, size := range []int{pipeSize, smallPipeSize} {
		if _, err := unix.FcntlInt(uintptr(st.fd), unix.F_SETPIPE_SZ, size); err == nil {
			return
		}
	}
}

// publish appends output to the log, up to the limit.
func (s *session) publish(name spool.Stream, b []byte) {
	n, exceeds := s.output.Add(name, b)
	if n > 0 {
		s.append(spool.Event{Kind: spool.KindOutput, Stream: name, Bytes: bytes.Clone(b[:n])})
	}
	if !exceeds {
		return
	}
	s.notice(spool.Notice{Code: NoticeOutputLimit, Text: s.output.Text("cell"), Level: "warning"})
	if s.limits.OutputPolicy == meter.Stop {
		if t := s.turns.Running(); t != nil {
			s.stopTurn(t, "output", s.schedule)
		} else {
			s.kill() // no turn to stop
		}
	}
}

// block stops reading, so that the writers wait, until the turn is over.
func (s *session) block() {
	if s.streams[0].blocked {
		return
	}
	s.notice(spool.Notice{Code: NoticeOutputLimit, Text: s.output.Text("cell"), Level: "warning"})
	s.setBlocked(true)
}

// unblock reads again, so that the writers of a turn that is being stopped can end.
func (s *session) unblock() {
	s.output.Exceed()
	s.setBlocked(false)
}

func (s *session) setBlocked(blocked bool) {
	for i := range s.streams {
		st := &s.streams[i]
		if st.blocked == blocked {
			continue
		}
		st.blocked = blocked
		if st.fd < 0 {
			continue
		}
		events := uint32(unix.EPOLLIN)
		if blocked {
			events = 0 // the end is still reported
		}
		s.reactor.Change(st.fd, events)
	}
}

// drainStreams reads the bytes that are in both pipes now.
func (s *session) drainStreams() {
	for i := range s.streams {
		for got := 0; got < drainMax; {
			n := s.read(i)
			if n == 0 {
				break
			}
			got += n
		}
	}
}

// endStream stops reading a stream.
func (s *session) endStream(i int) {
	if st := &s.streams[i]; st.fd >= 0 {
		s.flushPartialOf(st)
		s.reactor.Remove(st.fd)
		st.fd = -1 // the interpreter's to close
	}
}

// flushOutput appends the end of a truncated output.
func (s *session) flushOutput() {
	s.output.Flush(func(e spool.Event) { s.append(e) })
}

// send queues a message for the interpreter.
func (s *session) send(m dict) {
	s.trace.record(toInterpreter, m)
	s.outgoing = appendFrame(s.outgoing, m)
}

// write writes as much of the queued messages as the control socket accepts.
func (s *session) write() {
	if s.interp == nil || len(s.outgoing) == 0 {
		return
	}
	for len(s.outgoing) > 0 {
		n, err := unix.SendmsgN(s.interp.ctl, s.outgoing, nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			s.watchControl(unix.EPOLLIN | unix.EPOLLOUT)
			return
		case err != nil: // the interpreter has ended: its exit follows
			s.outgoing = nil
			return
		}
		s.outgoing = s.outgoing[n:]
	}
	s.outgoing = nil
	s.watchControl(unix.EPOLLIN)
}

func (s *session) watchControl(events uint32) {
	if s.interp.ctlEvents == events {
		return
	}
	s.interp.ctlEvents = events
	s.reactor.Change(s.interp.ctl, events)
}

func (s *session) notice(n spool.Notice) { s.event(spool.KindNotice, n) }

// event appends an event of the running turn.
func (s *session) event(kind spool.Kind, data any) {
	s.append(spool.Event{Kind: kind, Data: encode(data)})
}

// append appends to the log. If the log is closed, it kills the run.
func (s *session) append(e spool.Event) {
	if s.logClosed {
		return
	}
	if t := s.turns.Running(); t != nil {
		e.Turn = t.Seq
	}
	if _, err := s.out.Append(e); err != nil {
		s.handleClosedLog()
	}
}

// handleClosedLog kills the run because the log is closed.
func (s *session) handleClosedLog() {
	s.logClosed = true
	s.kill()
}
