package wasipy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The frames on a lane: a u32 length, a byte that says what it is, the rest.
const (
	// To a worker.
	frameRun       = 'R' // a runRequest
	frameForget    = 'C' // the context is over
	frameKill      = 'K'
	frameInterrupt = 'I' // u32 number
	frameAnswer    = 'a' // of a read or an ask: a status, and more; of a file call: all of it

	// Both ways.
	frameBell = 'b' // there is something in the window, or was

	// From a worker.
	frameStarted = 'S' // guest.Startup
	frameWrite   = 'W' // stream, bytes
	frameRead    = 'r' // u32 how much at most
	frameAsk     = 'q' // u16 length of the kind, kind, payload
	frameFile    = 'f' // a call of a file system, as vfs has it
	frameHeard   = 'i' // u32 number of an interrupt
	frameEnd     = 'E' // a runResponse
)

const (
	frameHeader = 5
	maxFrame    = maxAsk + 1<<10
	keptBuffer  = 256 << 10 // a larger one is given back
)

// How long to wait in a system call for the next frame before the runtime's
// poller takes over, which needs no thread and longer to wake up.
const hotWait = 200 * time.Microsecond

// How long to ask again and again before that. An answer to a file call comes
// sooner than a thread that sleeps wakes up.
const spinWait = 15 * time.Microsecond

// Ways to wait for a frame.
type patience byte

const (
	patient patience = iota // by the runtime's poller
	hot                     // in a system call for a moment, then patient
	hottest                 // in a system call
	hurried                 // not at all
)

var errNoFrame = errors.New("no frame is there")

// lane is a connection between a worker and its parent that carries one script
// at a time.
type lane struct {
	file *os.File // the socket; the runtime does not poll it
	raw  syscall.RawConn
	// idle becomes readable once for every time that somebody asks for it,
	// when there is input. This the runtime polls: the socket itself would
	// wake one of its threads with every frame that comes or is taken, however
	// it is waited for.
	idle     *os.File
	idleRaw  syscall.RawConn
	deadline atomic.Int64 // of receiving, in nanoseconds; zero for none
	closed   atomic.Bool
	window   *window // nil if there is none
	parent   bool    // whose end this is

	wmu  sync.Mutex // one frame after the other
	wbuf []byte

	rbuf []byte // what was read
	head int    // where the next frame begins
}

// newLane takes over a socket.
func newLane(fd int) (_ *lane, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a lane: %w", err)
		}
	}()
	if err := unix.SetNonblock(fd, false); err != nil { // so that it is not polled
		unix.Close(fd)
		return nil, err
	}
	l := &lane{file: os.NewFile(uintptr(fd), "lane"), rbuf: make([]byte, 0, 4<<10)}
	if err := unix.SetNonblock(fd, true); err != nil {
		l.file.Close()
		return nil, err
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = errors.Join(unix.SetNonblock(ep, true), unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{}))
		l.idle = os.NewFile(uintptr(ep), "idle lane")
		if err == nil {
			l.idleRaw, err = l.idle.SyscallConn()
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lane) close() {
	l.closed.Store(true)
	_ = l.idle.Close() // nil does no harm
	_ = l.file.Close()
}

// setDeadline says until when to receive.
func (l *lane) setDeadline(t time.Time) {
	ns := int64(0)
	if !t.IsZero() {
		ns = t.UnixNano()
	}
	l.deadline.Store(ns)
	_ = l.idle.SetReadDeadline(t) // fails only when it is closed
}

// send sends a frame.
func (l *lane) send(kind byte, parts ...[]byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > maxFrame {
		return fmt.Errorf("a frame of %d bytes is too large", n)
	}
	b := binary.LittleEndian.AppendUint32(l.wbuf[:0], uint32(n))
	b = append(b, kind)
	for _, p := range parts {
		b = append(b, p...)
	}
	l.wbuf = b[:0]
	if cap(b) > keptBuffer {
		l.wbuf = nil
	}
	var failed error
	err := l.raw.Write(func(fd uintptr) bool {
		for len(b) > 0 && failed == nil {
			n, err := unix.Write(int(fd), b)
			switch {
			case err == nil:
				b = b[n:]
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				await(int(fd), unix.POLLOUT, lookWait)
				if l.closed.Load() {
					failed = os.ErrClosed
				}
			default:
				failed = err
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}

// recv returns the next frame. It is valid until the next call.
func (l *lane) recv(p patience) (byte, []byte, error) {
	for {
		have := l.rbuf[l.head:]
		want := frameHeader
		if len(have) >= frameHeader {
			n := int(binary.LittleEndian.Uint32(have))
			if n > maxFrame {
				return 0, nil, fmt.Errorf("a frame of %d bytes is too large", n)
			}
			want += n
			if len(have) >= want {
				l.head += want
				return have[4], have[frameHeader:want:want], nil
			}
		}
		l.room(want)
		how := p
		if p == hurried && len(have) > 0 {
			how = hottest // it is on its way
		}
		err := l.fill(how)
		if errors.Is(err, errBell) {
			return frameBell, nil, nil
		}
		if err != nil {
			return 0, nil, err
		}
	}
}

// errBell says that there is a call in the window, which no frame may tell of.
var errBell = errors.New("a call is in the window")

// called says whether that is so.
func (l *lane) called() bool { return l.parent && l.window != nil && l.window.pending() }

// look says whether calls in the window are looked for.
func (l *lane) look(looking bool) {
	if l.parent && l.window != nil {
		l.window.look(looking)
	}
}

// room makes place for a frame of so many bytes.
func (l *lane) room(want int) {
	have := l.rbuf[l.head:]
	switch {
	case want > cap(l.rbuf) || len(have) == 0 && cap(l.rbuf) > keptBuffer:
		l.rbuf = append(make([]byte, 0, max(want, 4<<10)), have...)
	case l.head > 0:
		l.rbuf = l.rbuf[:copy(l.rbuf, have)]
	}
	l.head = 0
}

// fill reads what there is.
func (l *lane) fill(p patience) error {
	for {
		// First, for a peer that never stops: it is not to be trusted.
		if d := l.deadline.Load(); d != 0 && time.Now().UnixNano() >= d {
			return os.ErrDeadlineExceeded
		}
		err := l.read(p == hot || p == hottest)
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		// In this order: a call that comes after the look rings.
		l.look(false)
		if l.called() {
			return errBell
		}
		switch p {
		case hurried:
			return errNoFrame
		case patient:
			if err := l.wait(); err != nil {
				return err
			}
		case hot:
			p = patient
			l.awaitInput(hotWait)
		case hottest:
			l.awaitInput(-1)
		}
	}
}

// read reads, and asks again for a moment if told so. There is nothing to read
// if the error is [unix.EAGAIN].
func (l *lane) read(again bool) (err error) {
	l.look(again)
	rawErr := l.raw.Read(func(fd uintptr) bool {
		var began time.Time
		for {
			if l.called() {
				err = errBell
				return true
			}
			var n int
			n, err = unix.Read(int(fd), l.rbuf[len(l.rbuf):cap(l.rbuf)])
			switch {
			case err == nil && n == 0:
				err = io.EOF
				return true
			case err == nil:
				l.rbuf = l.rbuf[:len(l.rbuf)+n]
				return true
			case err == unix.EINTR:
				continue
			case err != unix.EAGAIN || !again:
				return true
			}
			now := time.Now()
			if began.IsZero() {
				began = now
			} else if now.Sub(began) >= spinWait {
				return true
			}
			yield()
		}
	})
	if rawErr != nil {
		return rawErr
	}
	return err
}

// yield lets others have this processor, if they wait for it: the peer whose
// answer is awaited may well be one of them.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// wait waits for input by the runtime's poller.
func (l *lane) wait() error {
	var failed error
	arm := func(fd uintptr) {
		failed = l.idleRaw.Control(func(ep uintptr) {
			failed = unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT})
		})
	}
	if err := errors.Join(l.raw.Control(arm), failed); err != nil {
		return err
	}
	err := l.idleRaw.Read(func(ep uintptr) bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(int(ep), events[:], 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failed = err
			return true
		}
		return n > 0
	})
	return errors.Join(err, failed)
}

// awaitInput waits until there is something to read, for so long or, if
// negative, for ever. It says whether there is.
func (l *lane) awaitInput(d time.Duration) (arrived bool) {
	_ = l.raw.Control(func(fd uintptr) { arrived = await(int(fd), unix.POLLIN, d) })
	return arrived
}

// lookWait is how often somebody who waits for a peer to receive looks whether
// the lane was closed.
const lookWait = 50 * time.Millisecond

// await waits in a system call for a descriptor to be ready.
func await(fd int, events int16, d time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	var limit *unix.Timespec
	if d >= 0 {
		ts := unix.NsecToTimespec(int64(d))
		limit = &ts
	}
	n, _ := unix.Ppoll(fds, limit, nil)
	return n > 0
}

// pair returns the two ends of a lane that is not one yet.
func pair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("make a lane: %w", err)
	}
	return fds[0], fds[1], nil
}
