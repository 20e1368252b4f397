package wasipy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
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
	maxFrame    = guest.MaxAnswerBytes + 1<<10 // scripts, answers, output and results
	maxAskFrame = guest.MaxAskBytes + 1<<10    // asks
	maxCall     = 2 * vfs.MaxMessage           // anything else that a worker sends
	keptBuffer  = 256 << 10                    // a larger one is given back
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
	file   *os.File
	raw    syscall.RawConn
	window *window
	parent bool // whose end this is

	wmu  sync.Mutex // one frame after the other
	wbuf []byte

	rbuf []byte // what was read
	head int    // where the next frame begins
}

// newLane takes over a socket.
func newLane(fd int, w *window, parent bool) (*lane, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a lane: %w", err)
	}
	f := os.NewFile(uintptr(fd), "lane")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make a lane: %w", err)
	}
	return &lane{file: f, raw: raw, window: w, parent: parent, rbuf: make([]byte, 0, 4<<10)}, nil
}

func (l *lane) close() { _ = l.file.Close() }

// limit bounds a frame by its kind and direction.
func (l *lane) limit(kind byte, fromWorker bool) int {
	switch {
	case !fromWorker, kind == frameEnd, kind == frameWrite:
		return maxFrame
	case kind == frameAsk:
		return maxAskFrame
	}
	return maxCall
}

// send sends a frame.
func (l *lane) send(kind byte, parts ...[]byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > l.limit(kind, !l.parent) {
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
		for len(b) > 0 {
			n, err := unix.Write(int(fd), b)
			switch {
			case err == nil:
				b = b[n:]
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			default:
				failed = err
				return true
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
			if n > l.limit(have[4], l.parent) {
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
		if errors.Is(err, errCalled) {
			return frameBell, nil, nil
		}
		if err != nil {
			return 0, nil, err
		}
	}
}

// errCalled says that a call is in the window, whether or not a bell tells of
// it.
var errCalled = errors.New("a call is in the window")

// called says whether that is so.
func (l *lane) called() bool { return l.parent && l.window.pending() }

// look says whether calls in the window are looked for. One that comes while
// they are not rings.
func (l *lane) look(looking bool) {
	if l.parent {
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
	var failed error
	var spun time.Time
	l.look(p == hot || p == hottest)
	err := l.raw.Read(func(fd uintptr) bool {
		for {
			if l.called() {
				failed = errCalled
				return true
			}
			n, err := unix.Read(int(fd), l.rbuf[len(l.rbuf):cap(l.rbuf)])
			switch {
			case err == nil && n == 0:
				failed = io.EOF
				return true
			case err == nil:
				l.rbuf = l.rbuf[:len(l.rbuf)+n]
				return true
			case errors.Is(err, unix.EINTR):
				continue
			case !errors.Is(err, unix.EAGAIN):
				failed = err
				return true
			}
			if p == hot || p == hottest {
				now := time.Now()
				if spun.IsZero() {
					spun = now
				}
				if now.Sub(spun) < spinWait {
					yield()
					continue
				}
			}
			// In this order: a call that the look misses rings.
			l.look(false)
			if l.called() {
				continue
			}
			switch p {
			case hurried:
				failed = errNoFrame
				return true
			case patient:
				return false
			case hot:
				p = patient
				awaitInput(int(fd), hotWait)
			case hottest:
				awaitInput(int(fd), -1)
			}
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// yield lets others have this processor, if they wait for it: the peer whose
// answer is awaited may well be one of them.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// awaitInput waits until there is something to read, for so long or, if negative,
// for ever. It says whether there is.
func awaitInput(fd int, d time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
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
