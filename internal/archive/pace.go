package archive

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/pause"
)

// pace limits a rate of bytes. Those who take wait until the bytes that were taken
// before are due.
type pace struct {
	rate int64 // bytes per second; zero means any

	mu   sync.Mutex
	next time.Time // when the next byte is due
}

// take waits until n bytes are due. A pause leaves no credit: a rate is a rate.
func (p *pace) take(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	p.mu.Unlock()
	return pause.For(ctx, wait)
}

// paceStep is how many bytes are read at once at a limited rate.
const paceStep = 128 << 10

// pacedFile reads a file at the pace of an upload.
type pacedFile struct {
	ctx  context.Context
	pace *pace
	file io.ReaderAt
}

// ReadAt implements [io.ReaderAt].
func (f *pacedFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		step := min(len(p)-n, paceStep)
		if err := f.pace.take(f.ctx, step); err != nil {
			return n, err
		}
		m, err := f.file.ReadAt(p[n:n+step], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// resting returns a function that rests as long as it took since its last call, so
// that a caller in a loop takes half of a processor at most.
func resting(ctx context.Context) func() {
	since := time.Now()
	return func() {
		// A step that took longer waited for a processor.
		_ = pause.For(ctx, min(time.Since(since), longestRest))
		since = time.Now()
	}
}

const longestRest = 100 * time.Millisecond
