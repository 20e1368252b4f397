// Package engine is the seam between the host, which owns runs and their
// logs, and the engines, which make things happen and only ever append.
package engine

import (
	"context"
	"io"

	"github.com/spool-run/spool"
)

// Engine starts runs of one kind.
type Engine interface {
	// Start begins what the spec asks for and returns once it really
	// began, or with a [*spool.StartError] and nothing left behind. The
	// context bounds the start only; the session outlives it.
	Start(ctx context.Context, spec spool.Spec, out Sink) (Session, error)
}

// Session is one live run.
type Session interface {
	// Pid is the leader's process id, or zero if there is none.
	Pid() int
	// Takes says whether the run takes such an input at all now, without
	// waiting; [spool.ErrInputClosed] if it does not.
	Takes(in spool.Input) error
	// Send delivers input. Calls come one at a time, in order; a call may
	// wait until the run takes the input, or ctx ends. An input that was
	// logged comes with the seq of its event, which names the turn it
	// begins; Send must not wait for that turn, or answers to what it asks
	// could not pass. An error ends the input of the run: a turn that goes
	// wrong is told by its done event.
	Send(ctx context.Context, in spool.Input) error
	// Control acts at once. It may be called at any time, by anyone.
	Control(ctx context.Context, c spool.Control) error
	// Wait returns how the run ended, after its last append. The engine
	// has appended exited or failed by then; closed is the host's to write.
	Wait() spool.Outcome
}

// Sink takes what a run produces. It is safe for concurrent use.
type Sink interface {
	// Append adds an event and returns its seq. It never waits for a
	// reader. Run, Seq and a zero Time are filled in. The sink owns Bytes
	// and Data from then on. An error means that the log takes no more,
	// and that the engine should end the run; but [spool.ErrNotAsked] means
	// that a notice which closes an ask was not added, because the ask was
	// answered first.
	Append(e spool.Event) (spool.Seq, error)
	// PutBlob stores a large value beside the log.
	PutBlob(mime string, r io.Reader) (spool.Blob, error)
}

// Concluder is a [Sink] that can end the log together with the event that says
// how the session ended, so that readers hear of both at once. An engine uses
// it when nothing else will come, in place of its last Append.
type Concluder interface {
	// Conclude appends the event and ends the log. It reports false if it
	// did not, and the event is to be appended.
	Conclude(e spool.Event) bool
}

// Forgetful is a [Sink] that does not keep everything in memory, for an engine
// that would rather use its buffers again.
type Forgetful interface {
	// Keeps reports whether Append keeps the Bytes of an event of that
	// size. If not, they are the engine's again when it returns.
	Keeps(size int) bool
}
