package wasipy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// direct is the link of an interpreter to a host in the same process. In a
// worker's parent it does the waiting for the worker.
type direct struct {
	guest.Host
	ctx context.Context // of the script

	tell        func(n uint32)  // says an interrupt to a worker; may be nil
	gone        <-chan struct{} // closed when the worker has ended; may be nil
	mu          sync.Mutex
	interrupted bool
	interrupts  uint32             // how many there were
	wake        chan struct{}      // has room for one: something is pending
	cancel      context.CancelFunc // ends the call that waits now
	done        bool
}

// newDirect returns the link of one script. It has to be closed.
func newDirect(ctx context.Context, h guest.Host) *direct {
	return &direct{Host: h, ctx: ctx, wake: make(chan struct{}, 1)}
}

// Interrupt asks for a KeyboardInterrupt, unless the script is over.
func (d *direct) Interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return
	}
	d.interrupted = true
	d.interrupts++
	if d.tell != nil {
		d.tell(d.interrupts)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
	if d.cancel != nil {
		d.cancel()
	}
}

// attach gives the link a worker, and tells it what it missed.
func (d *direct) attach(tell func(n uint32), gone <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell, d.gone = tell, gone
	if d.interrupted {
		tell(d.interrupts)
	}
}

func (d *direct) close() {
	d.mu.Lock()
	d.done = true
	d.mu.Unlock()
}

// number is that of the last interrupt.
func (d *direct) number() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.interrupts
}

// heard is called when a worker took an interrupt in.
func (d *direct) heard(n uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n == d.interrupts {
		d.interrupted = false
	}
}

// Pending implements link.
func (d *direct) Pending() signal {
	if d.ctx.Err() != nil {
		return stop
	}
	select {
	case <-d.wake:
		return d.takeInterrupt()
	default:
		return nothing
	}
}

func (d *direct) takeInterrupt() signal {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.interrupted {
		return nothing
	}
	d.interrupted = false
	return interrupt
}

// Wait implements link.
func (d *direct) Wait(t time.Duration) signal {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-d.ctx.Done():
		return stop
	case <-d.wake:
		return d.takeInterrupt()
	case <-timer.C:
		return nothing
	}
}

// waiting does a call that waits until an interrupt or the script's end.
func (d *direct) waiting(call func(ctx context.Context)) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	d.mu.Lock()
	if d.interrupted {
		cancel()
	}
	d.cancel = cancel
	d.mu.Unlock()
	if d.gone != nil {
		go func() {
			select {
			case <-d.gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	call(ctx)
	d.mu.Lock()
	d.cancel = nil
	d.mu.Unlock()
	select {
	case <-d.gone:
		return errStop
	case <-d.ctx.Done():
		return errStop
	default:
	}
	if ctx.Err() != nil && d.takeInterrupt() == interrupt {
		return errInterrupt
	}
	return nil
}

// Read implements link.
func (d *direct) Read(p []byte) (int, error) {
	var n int
	var err error
	if how := d.waiting(func(ctx context.Context) { n, err = d.Host.Read(ctx, p) }); how != nil {
		return 0, how
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return n, err
}

// Ask implements link.
func (d *direct) Ask(kind string, payload []byte) ([]byte, error) {
	var reply []byte
	err := d.waiting(func(ctx context.Context) { reply = d.Host.Ask(ctx, kind, payload) })
	return reply, err
}

// recorder is the link of an interpreter that has no script yet: it keeps
// what is printed, and has no one to ask.
type recorder struct{ out io.Writer }

func (r *recorder) Started(guest.Startup)          {}
func (r *recorder) Write(_ guest.Stream, p []byte) { _, _ = r.out.Write(p) }
func (r *recorder) Read([]byte) (int, error)       { return 0, io.EOF }
func (r *recorder) Pending() signal                { return nothing }
func (r *recorder) Wait(t time.Duration) signal    { time.Sleep(t); return nothing }
func (r *recorder) Ask(string, []byte) ([]byte, error) {
	return guest.Reply{Error: &guest.ReplyError{Code: guest.CodeDenied, Message: "no host is connected"}}.Encode(), nil
}
