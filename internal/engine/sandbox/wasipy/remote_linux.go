package wasipy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// How a read or an ask ended, in an answer.
const (
	statusOK = iota
	statusEOF
	statusInterrupted // u32 number follows
	statusStop
	statusFailed
)

// remote is the link of an interpreter in a worker to the host of its script,
// which is in the parent.
type remote struct {
	lane    *lane
	stopped bool
	pending bool // an interrupt
	heard   uint32
	looked  time.Time
}

// look is how often a busy script looks whether its caller wants something.
const look = time.Millisecond

// Started implements link.
func (r *remote) Started(s guest.Startup) {
	b, err := json.Marshal(s)
	if err == nil {
		r.send(frameStarted, b)
	}
}

// Write implements link.
func (r *remote) Write(s guest.Stream, p []byte) { r.send(frameWrite, []byte{byte(s)}, p) }

func (r *remote) send(kind byte, parts ...[]byte) {
	if r.lane.send(kind, parts...) != nil {
		r.stopped = true // the parent is gone
	}
}

// Read implements link.
func (r *remote) Read(p []byte) (int, error) {
	if r.take() == interrupt { // the parent knows that it was heard, and would wait
		return 0, errInterrupt
	}
	r.send(frameRead, binary.LittleEndian.AppendUint32(nil, uint32(len(p))))
	b, err := r.waited()
	return copy(p, b), err
}

// Ask implements link.
func (r *remote) Ask(kind string, payload []byte) ([]byte, error) {
	if r.take() == interrupt {
		return nil, errInterrupt
	}
	r.send(frameAsk, binary.LittleEndian.AppendUint16(nil, uint16(len(kind))), []byte(kind), payload)
	b, err := r.waited()
	return append([]byte(nil), b...), err
}

// waited returns the answer of a call for which the parent waits. An interrupt
// comes with the answer.
func (r *remote) waited() ([]byte, error) {
	b, err := r.answer(false)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, errStop
	}
	switch b[0] {
	case statusOK:
		return b[1:], nil
	case statusEOF:
		return nil, io.EOF
	case statusInterrupted:
		if len(b) == 5 && r.hear(binary.LittleEndian.Uint32(b[1:])) {
			return nil, errInterrupt
		}
		return nil, errInterrupt
	case statusFailed:
		return nil, errors.New("the host failed to answer")
	}
	return nil, errStop
}

// answer waits for an answer.
func (r *remote) answer(keep bool) ([]byte, error) {
	for !r.stopped {
		kind, b, err := r.lane.recv(hottest)
		if err != nil {
			r.stopped = true
			break
		}
		if kind == frameAnswer {
			return b, nil
		}
		r.control(kind, b, keep)
	}
	return nil, errStop
}

// control takes in what is no answer. An interrupt is kept only if nothing
// else will bring it.
func (r *remote) control(kind byte, b []byte, keep bool) {
	switch kind {
	case frameInterrupt:
		if keep && len(b) == 4 && r.hear(binary.LittleEndian.Uint32(b)) {
			r.pending = true
			r.send(frameHeard, b)
		}
	case frameKill:
		r.stopped = true
	case frameBell: // for a call that was answered by then
	default:
		r.stopped = true
	}
}

// hear says whether an interrupt is new.
func (r *remote) hear(n uint32) bool {
	if n <= r.heard {
		return false
	}
	r.heard = n
	return true
}

// File carries the calls of a file system.
func (r *remote) File(request []byte) ([]byte, error) {
	if r.stopped {
		return nil, errStop
	}
	if asked, ring := r.lane.window.ask(request); asked {
		if ring {
			r.send(frameBell)
		}
		return r.through(r.lane.window)
	}
	r.send(frameFile, request)
	b, err := r.answer(true)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), b...), nil
}

// through waits for the answer to a call that was made through the window. One
// that is large comes on the lane.
func (r *remote) through(w *window) ([]byte, error) {
	for began := time.Now(); time.Since(began) < spinWait; yield() {
		for range 20 {
			if w.answered() {
				return w.answer(nil), nil
			}
		}
	}
	w.sleep(true)
	defer w.sleep(false)
	for !w.answered() {
		kind, b, err := r.lane.recv(hottest)
		switch {
		case err != nil:
			r.stopped = true
		case kind == frameAnswer:
			return append([]byte(nil), b...), nil
		default:
			r.control(kind, b, true)
		}
		if r.stopped {
			return nil, errStop
		}
	}
	return w.answer(nil), nil
}

// Pending implements link.
func (r *remote) Pending() signal {
	if now := time.Now(); now.Sub(r.looked) >= look {
		r.looked = now
		r.receive(hurried)
	}
	return r.take()
}

func (r *remote) take() signal {
	switch {
	case r.stopped:
		return stop
	case r.pending:
		r.pending = false
		return interrupt
	}
	return nothing
}

// receive takes in a frame of control.
func (r *remote) receive(p patience) {
	kind, b, err := r.lane.recv(p)
	switch {
	case err == nil:
		r.control(kind, b, true)
	case !errors.Is(err, errNoFrame):
		r.stopped = true
	}
}

// Wait implements link.
func (r *remote) Wait(d time.Duration) signal {
	if s := r.take(); s != nothing {
		return s
	}
	arrived := false
	_ = r.lane.raw.Control(func(fd uintptr) { arrived = awaitInput(int(fd), d) })
	if arrived {
		r.receive(hurried)
	}
	return r.take()
}

// runRequest asks a worker for one script.
type runRequest struct {
	// Config is that of the context, in the first request of a context.
	Config *contextConfig `json:"config,omitempty"`
	Script guest.Script   `json:"script"`
	// Left is the time until the script has to end; zero means for ever.
	Left time.Duration `json:"left,omitempty"`
}

// runResponse is how it ended.
type runResponse struct {
	Result guest.Result `json:"result"`
	// Used is the processor time that the worker took for it.
	Used  time.Duration `json:"used"`
	Error string        `json:"error,omitempty"`
}

// use is what the script used. A worker is not trusted to tell more than there can be.
func (r *runResponse) use(most time.Duration) *spool.ProcessUse {
	used := max(min(r.Used, most), 0)
	return &spool.ProcessUse{UserUs: used.Microseconds(), PeakMemory: max(r.Result.PeakMemory, 0)}
}

func (r *runResponse) unpack() (guest.Result, error) {
	if r.Error != "" {
		return r.Result, fmt.Errorf("in a worker: %s", r.Error)
	}
	return r.Result, nil
}
