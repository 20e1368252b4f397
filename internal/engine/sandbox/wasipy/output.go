package wasipy

import (
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// How output is put together. A print is two writes at least, and each that
// goes out has a price for all who follow.
const (
	outputPause = time.Millisecond // what comes this soon after the last may wait
	outputMax   = 32 << 10
)

// output passes on what the guest writes: at once after a pause, else together
// with what follows within a moment. What waits goes out at the next tick or
// before the guest itself waits, so nothing is held back from who looks.
type output struct {
	link   link
	stream guest.Stream
	buf    []byte
	last   time.Duration // when something went out
}

func (o *output) reset(l link) { *o = output{link: l, buf: o.buf[:0], last: -outputPause} }

func (o *output) write(now time.Duration, s guest.Stream, p []byte) {
	if s != o.stream {
		o.flush(now)
		o.stream = s
	}
	if len(o.buf) == 0 && (len(p) >= outputMax || now-o.last >= outputPause) {
		o.link.Write(s, p)
		o.last = now
		return
	}
	o.buf = append(o.buf, p...)
	if len(o.buf) >= outputMax || now-o.last >= outputPause {
		o.flush(now)
	}
}

func (o *output) tick(now time.Duration) {
	if len(o.buf) > 0 && now-o.last >= outputPause {
		o.flush(now)
	}
}

func (o *output) flush(now time.Duration) {
	if len(o.buf) > 0 {
		o.link.Write(o.stream, o.buf)
		o.buf = o.buf[:0]
		o.last = now
	}
}

// flush passes on all that the guest has written.
func (i *instance) flush() { i.out.flush(i.now()) }
