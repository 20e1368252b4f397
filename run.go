package spool

import (
	"context"
	"io"
	"iter"
)

// Run is a handle to a run on some backend. It holds no state of its own, so
// any number may exist and none needs to be closed.
type Run struct {
	backend Backend
	id      RunID
	began   bool // by the caller who got the handle, so the log was short then
}

// Start begins a run on the backend.
func Start(ctx context.Context, b Backend, spec Spec) (*Run, error) {
	info, err := b.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &Run{b, info.ID, true}, nil
}

// Attach returns a handle to the run with that id. It does not check that the run
// exists; the first call on the handle does.
func Attach(b Backend, id RunID) *Run { return &Run{backend: b, id: id} }

// ID returns the run's id.
func (r *Run) ID() RunID { return r.id }

// Info describes the run now.
func (r *Run) Info(ctx context.Context) (Info, error) { return r.backend.Stat(ctx, r.id) }

// Events yields every event after a cursor and ends after the closed event.
func (r *Run) Events(ctx context.Context, after Seq) iter.Seq2[Event, error] {
	return r.backend.Follow(ctx, r.id, after)
}

// Stream is Events for a reader who is done with each event before it asks
// for the next: Bytes and Data are only lent. On a fast run that costs a
// fraction.
func (r *Run) Stream(ctx context.Context, after Seq) iter.Seq2[Event, error] {
	type streamer interface {
		Stream(ctx context.Context, id RunID, after Seq) iter.Seq2[Event, error]
	}
	if s, ok := r.backend.(streamer); ok {
		return s.Stream(ctx, r.id, after)
	}
	return r.backend.Follow(ctx, r.id, after)
}

// Read returns one page of events.
func (r *Run) Read(ctx context.Context, q Query) (Page, error) { return r.backend.Read(ctx, r.id, q) }

// Send delivers input.
func (r *Run) Send(ctx context.Context, in Input) (Receipt, error) {
	return r.backend.Send(ctx, r.id, in)
}

// Control acts on the run at once.
func (r *Run) Control(ctx context.Context, c Control) error { return r.backend.Control(ctx, r.id, c) }

// Blob opens a large value that an event of the run refers to.
func (r *Run) Blob(ctx context.Context, d Digest) (io.ReadCloser, error) {
	return r.backend.Blob(ctx, r.id, d)
}

// Stdin returns a writer to the run's standard input; closing it sends end of
// file.
func (r *Run) Stdin(ctx context.Context) io.WriteCloser { return &stdin{ctx, r} }

type stdin struct {
	ctx context.Context
	run *Run
}

// stdinChunk keeps one input well below every frame limit.
const stdinChunk = 256 << 10

func (w *stdin) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, stdinChunk)
		in := Input{Kind: InputStdin, Bytes: append([]byte(nil), p[done:done+n]...)}
		if _, err := w.run.Send(w.ctx, in); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (w *stdin) Close() error {
	_, err := w.run.Send(w.ctx, Input{Kind: InputEOF})
	return err
}

// Interrupt does what Ctrl-C would.
func (r *Run) Interrupt(ctx context.Context) error {
	return r.Control(ctx, Control{Op: ControlInterrupt})
}

// Signal sends a signal, such as "SIGHUP", to the leader's process group.
func (r *Run) Signal(ctx context.Context, name string) error {
	return r.Control(ctx, Control{Op: ControlSignal, Signal: name})
}

// Resize changes the size of the run's terminal.
func (r *Run) Resize(ctx context.Context, s Size) error {
	return r.Control(ctx, Control{Op: ControlResize, Size: s})
}

// Stop asks the run to end, and kills its whole tree after its grace period.
// It does not wait; [Run.Wait] does.
func (r *Run) Stop(ctx context.Context) error { return r.Control(ctx, Control{Op: ControlStop}) }

// Kill ends the whole tree at once.
func (r *Run) Kill(ctx context.Context) error { return r.Control(ctx, Control{Op: ControlKill}) }

// Wait returns the outcome once the run is closed: after its process, and every
// process that holds its output open, has ended.
func (r *Run) Wait(ctx context.Context) (Outcome, error) {
	if r.began {
		if o, ended, err := r.waitShort(ctx); ended || err != nil {
			return o, err
		}
	}
	info, err := r.Info(ctx)
	if err != nil {
		return Outcome{}, err
	}
	outcome := noOutcome
	// What is in the log already was described by info: follow the rest.
	if info.Outcome != nil {
		outcome = *info.Outcome
	}
	if info.State == StateClosed {
		return outcome, nil
	}
	for e, err := range r.Events(ctx, info.Last) {
		if err != nil {
			return Outcome{}, err
		}
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
	}
	return outcome, nil
}

// noOutcome is that of a log which ends without one.
var noOutcome = Outcome{Kind: Unknown, Reason: "the log ends without an outcome"}

// shortLog is how much of the log of a run [Run.Wait] reads to find its outcome. A
// longer log is not worth it: only its end is.
const shortLog = 64 << 10

// waitShort waits for the end of a run whose log is short. A server sends the
// beginning of the log with the answer to the start, so this takes no request.
func (r *Run) waitShort(ctx context.Context) (outcome Outcome, ended bool, err error) {
	outcome = noOutcome
	size := 0
	for e, err := range r.Stream(ctx, 0) {
		if err != nil {
			return Outcome{}, false, err
		}
		if o, ok := e.Outcome(); ok {
			outcome = o
		}
		if e.Kind == KindClosed {
			return outcome, true, nil
		}
		if size += e.Size(); size > shortLog {
			break
		}
	}
	return outcome, false, nil
}

// Output waits until the run is closed and returns all bytes of the given
// streams, in log order; of all streams if none is given.
func (r *Run) Output(ctx context.Context, streams ...Stream) ([]byte, error) {
	var out []byte
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			return out, err
		}
		if e.Kind != KindOutput {
			continue
		}
		wanted := len(streams) == 0
		for _, s := range streams {
			wanted = wanted || s == e.Stream
		}
		if wanted {
			out = append(out, e.Bytes...)
		}
	}
	return out, nil
}
