// Package engine defines the interfaces between the host, which owns runs and
// their logs, and the engines, which execute runs and append to their logs.
package engine

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spool-run/spool"
)

// Engine starts runs of one kind.
type Engine interface {
	// Start starts a run and returns once it executes. If it fails, it
	// returns a [*spool.StartError] and leaves no process or file behind.
	// The context limits the start only; the session outlives it.
	Start(ctx context.Context, spec spool.Spec, out Sink) (Session, error)
}

// Isolator is an [Engine] that takes a spec with an isolation. The host refuses
// such a spec for all other engines.
type Isolator interface {
	// Isolates has no effect.
	Isolates()
}

// Isolated is a [Session] that says what its run is kept from.
type Isolated interface {
	// Isolation returns what the run has, or nil without a request.
	Isolation() *spool.Isolation
}

// Workspacer is an [Engine] that takes a spec with a workspace: its processes see an
// overlay in place of its base, one process tree after the other. The host refuses
// such a spec for all other engines.
type Workspacer interface {
	// HasWorkspaces has no effect.
	HasWorkspaces()
}

// Placer is a [Sink] whose run may have a workspace, which the host makes before the
// start. The Kind in the spec is then overlay or snapshot, and Base is its directory.
type Placer interface {
	// WorkspaceDir returns where the changes of the run are, or "" without a
	// workspace.
	WorkspaceDir() string
}

// Session is one live run.
type Session interface {
	// Pid returns the process id of the leader, or zero if there is none.
	Pid() int
	// Takes reports, without waiting, whether the run accepts such an
	// input now; the error is [spool.ErrInputClosed] if it does not.
	Takes(in spool.Input) error
	// Send delivers input. The host calls it for one input at a time, in
	// order; a call with standard input may wait until the run accepts it or
	// ctx ends. A logged input has the seq of its event, which names the turn
	// that the input begins, and Send does not wait with one: its sender is
	// the caller, and the answers to the asks of a turn are inputs, too. An
	// error ends the input of the run; the failure of a turn is reported by
	// its done event instead.
	Send(ctx context.Context, in spool.Input) error
	// Control acts at once. It may be called at any time, concurrently.
	Control(ctx context.Context, c spool.Control) error
	// Wait returns the outcome of the run after its last append. The engine
	// has appended exited or failed by then; the host appends closed.
	Wait() spool.Outcome
}

// Ender is a [Session] that tells of its end, so that nobody has to wait for it.
type Ender interface {
	// OnEnd has f called once, when Wait no longer waits: now, or by the
	// goroutine that ends the run. f must not block. OnEnd is called once.
	OnEnd(f func())
}

// Describer is a [Session] that says more about its run than the host knows.
type Describer interface {
	// Details returns a JSON object, for [spool.Info.Details]. It may be
	// called at any time, concurrently, also after the end of the run.
	Details() json.RawMessage
}

// Accountable is a [Session] that counts what its processes use.
type Accountable interface {
	// Used returns what the processes that ended have used, or nil if that
	// is not known. It may be called at any time, concurrently. Once the
	// session appends the outcome of the run, the value is final.
	Used() *spool.ProcessUse
}

// Sink is the log of a run, as an engine sees it. It is safe for concurrent use.
type Sink interface {
	// Append adds an event and returns its seq. It never waits for a
	// reader. The sink sets Run, Seq and a zero Time. It owns Bytes and
	// Data from then on. An error means that the log is closed and that
	// the engine should end the run; but [spool.ErrNotAsked] means
	// that a notice which closes an ask was not added, because the ask was
	// answered first.
	Append(e spool.Event) (spool.Seq, error)
	// Hold lets readers that wait for events sleep until Release, although
	// what is appended can be read at once. It is for an engine that is about
	// to append several events, so that readers wake up once.
	Hold()
	Release()
	// PutBlob stores a large value beside the log.
	PutBlob(mime string, r io.Reader) (spool.Blob, error)
}

// Concluder is a [Sink] that can append the event with the outcome of the run and
// end the log in one step, so that readers are woken once. An engine uses it in
// place of its last Append.
type Concluder interface {
	// Conclude appends the event and ends the log. If it returns false it
	// did neither, and the engine must append the event.
	Conclude(e spool.Event) bool
}

// DefaultSize is the size of a terminal whose spec does not say.
var DefaultSize = spool.Size{Rows: 24, Cols: 80}

// TerminalSize returns the size of the terminal that a spec asks for, and zero
// without one.
func TerminalSize(spec *spool.Spec) spool.Size {
	switch {
	case spec.TTY == nil:
		return spool.Size{}
	case *spec.TTY == spool.Size{}:
		return DefaultSize
	}
	return *spec.TTY
}

// Forgetful is a [Sink] that does not keep all events in memory, so that an engine
// can reuse its buffers.
type Forgetful interface {
	// Keeps reports whether Append retains the Bytes of an event of that
	// size. If not, the engine may reuse them when Append returns.
	Keeps(size int) bool
}

// Inspector is a [Session] that answers questions about its state between two
// turns; see [spool.Inspector].
type Inspector interface {
	Inspect(ctx context.Context, question json.RawMessage) (json.RawMessage, error)
}
