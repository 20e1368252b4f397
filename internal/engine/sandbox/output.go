package sandbox

import (
	"bytes"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/meter"
)

// Output becomes events: a complete line at once, anything else within
// outputMoment, so that readers see it early and the log has few small events.
//
// An event does not end inside a character, unless the rest of the character does
// not come within partialWait.
const (
	outputMoment = time.Millisecond
	outputChunk  = 64 << 10
	partialWait  = 50 * time.Millisecond
)

// output collects what one turn writes. Each stream has its own limit.
type output struct {
	turn   spool.Seq
	append func(spool.Event) error
	limit  int64
	over   func() // called once, when a limit is reached

	mu      sync.Mutex
	left    [3]int64 // by guest.Stream
	dropped [3]int64
	stream  guest.Stream // of pending
	pending []byte
	flushed time.Time
	timer   *time.Timer
	partial bool // pending is the beginning of a character, and waits for the rest
	closed  bool
}

func newOutput(turn spool.Seq, limit int64, write func(spool.Event) error, over func()) *output {
	return &output{turn: turn, append: write, limit: limit, over: over, left: [3]int64{0, limit, limit}}
}

var streams = [3]spool.Stream{"", spool.Stdout, spool.Stderr}

// write takes output.
func (o *output) write(s guest.Stream, p []byte) {
	if s != guest.Stdout && s != guest.Stderr || len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	n := min(int64(len(p)), o.left[s])
	o.left[s] -= n
	if rest := int64(len(p)) - n; rest > 0 {
		first := o.dropped[guest.Stdout]+o.dropped[guest.Stderr] == 0
		o.dropped[s] += rest
		if first {
			defer o.over()
		}
	}
	if n == 0 {
		return
	}
	if len(o.pending) > 0 && o.stream != s {
		o.flush()
	}
	o.stream = s
	first := len(o.pending) == 0 || o.partial // since the last flush
	o.pending, o.partial = append(o.pending, p[:n]...), false
	switch {
	case len(o.pending) >= outputChunk,
		p[n-1] == '\n' && time.Since(o.flushed) >= outputMoment:
		o.flushText()
	case first:
		o.wait(outputMoment)
	}
}

// wait has tick called. Callers hold o.mu.
func (o *output) wait(d time.Duration) {
	if o.timer == nil {
		o.timer = time.AfterFunc(d, o.tick)
		return
	}
	o.timer.Reset(d)
}

func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
	case o.partial:
		o.flush()
	default:
		o.flushText()
	}
}

// flushText writes what is pending, but for the beginning of a character at its
// end, which waits for the rest. Callers hold o.mu.
func (o *output) flushText() {
	n := meter.PartialRune(o.pending)
	rest := bytes.Clone(o.pending[len(o.pending)-n:])
	o.pending = o.pending[:len(o.pending)-n]
	o.flush()
	if n > 0 {
		o.pending, o.partial = rest, true
		o.wait(partialWait)
	}
}

// flush writes what is pending. Callers hold o.mu.
func (o *output) flush() {
	if len(o.pending) == 0 {
		return
	}
	e := spool.Event{Kind: spool.KindOutput, Turn: o.turn, Stream: streams[o.stream], Bytes: o.pending}
	o.pending, o.partial = nil, false
	o.flushed = time.Now()
	_ = o.append(e) // a log that takes no more ends the run
}

// sync writes what is pending, so that what is written next comes after it.
func (o *output) sync() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
}

// close writes what is pending, and what was dropped.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	o.closed = true
	if o.timer != nil {
		o.timer.Stop()
	}
	dropped := make(map[spool.Stream]int64)
	for s, n := range o.dropped {
		if n > 0 {
			dropped[streams[s]] = n
		}
	}
	if len(dropped) > 0 {
		e := meter.Truncated(o.limit, dropped)
		e.Turn = o.turn
		_ = o.append(e)
	}
}
