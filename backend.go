package spool

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"time"
)

// Backend runs things and keeps their logs. The local host, the keepers of a
// state directory and the remote client each are one; every wire and the
// command line are written once, against it.
//
// Errors are the same for every backend, by [errors.Is]. Every method returns
// [ErrClosed] after the backend was closed, [ErrDenied] if a policy or access
// rights forbid the call, and the cause of ctx if it ended. Those that take an
// id return [ErrNotFound] if there is no such run. The other errors are stated
// by each method. Every other error is a fault of the machine or of
// the connection.
type Backend interface {
	// Start begins a run and returns once it really started. If spec.ID
	// names a run that was started the same way, it returns that run.
	//
	// The error is [ErrExists] if spec.ID names another run, and else a
	// [*StartError], which is also [ErrInvalid] if the spec makes no sense
	// and [ErrUnsupported] if this backend cannot do what the spec asks.
	Start(ctx context.Context, spec Spec) (Info, error)
	// Stat describes a run now.
	Stat(ctx context.Context, id RunID) (Info, error)
	// List yields the runs that the filter selects, in its order. Runs that
	// start while it lists may be missing; a run that has started before is
	// listed once.
	//
	// A run that cannot be read is an error, after which the list goes on. It
	// comes in the place of the run, or first if f.After is empty. A filter
	// that makes no sense is [ErrInvalid].
	List(ctx context.Context, f Filter) iter.Seq2[Info, error]
	// Read returns the events after a cursor. If there is none, it waits for
	// one as long as the query says. A cursor beyond the end of the log is
	// no error.
	Read(ctx context.Context, id RunID, q Query) (Page, error)
	// Follow yields every event after a cursor, history and live alike, and
	// ends after the closed event. An error is the last thing it yields.
	Follow(ctx context.Context, id RunID, after Seq) iter.Seq2[Event, error]
	// Send delivers input, in order, once per Input.ID.
	//
	// The error is [ErrInputClosed] if the run takes no more input of that
	// kind, which every run does once it has ended; [ErrBusy] if it takes it
	// later; [ErrNotAsked] for an answer to what is not, or no longer, asked;
	// [ErrUnsupported] for a kind of input that such a run never takes; and
	// [ErrInvalid] for an input that does not decode or is too large.
	Send(ctx context.Context, id RunID, in Input) (Receipt, error)
	// Control acts on the run at once, ahead of any input.
	//
	// The error is [ErrEnded] if the run has ended, except for
	// [ControlStop] and [ControlKill], which have nothing left to do then;
	// [ErrUnsupported] for a control that such a run does not have; and
	// [ErrInvalid] for an unknown signal or an impossible size.
	Control(ctx context.Context, id RunID, c Control) error
	// Blob opens a large value that an event of the run refers to.
	//
	// The error is [ErrNotFound] too if there is no such blob, and
	// [ErrInvalid] for a digest that is none.
	Blob(ctx context.Context, id RunID, d Digest) (io.ReadCloser, error)
}

// Query says what to read. A zero MaxBytes means [DefaultPageBytes].
type Query struct {
	After    Seq
	MaxBytes int
	Wait     time.Duration // for the first event, if there is none yet
}

// DefaultPageBytes bounds a page whose query names no bound.
const DefaultPageBytes = 1 << 20

// Page is a stretch of a log. At least one event is returned if there is
// one, whatever its size; events are never split.
type Page struct {
	Events []Event
	Next   Seq // cursor to go on from
	// Info is the run as it is now, which may be ahead of Next.
	Info Info
	// Failure is set when the backend itself was lost, so that the rest
	// of the log cannot be read through it.
	Failure string
}

// End reports whether the page reached the end of a finished log.
func (p Page) End() bool {
	return p.Failure != "" || p.Info.State == StateClosed && p.Next >= p.Info.Last
}

// InputKind says what an input is.
type InputKind string

// The kinds of input.
const (
	InputStdin InputKind = "stdin" // Bytes for standard input
	InputEOF   InputKind = "eof"   // no more standard input

	InputCell   InputKind = "cell"   // Data is a [Cell]; begins a turn
	InputPrompt InputKind = "prompt" // Data is a [Prompt]; begins a turn
	InputAnswer InputKind = "answer" // Data is an [Answer]
)

// Input is one thing said to a run, in order. An ID that was accepted before
// is acknowledged and not applied again.
type Input struct {
	ID    string          `json:"id,omitempty"`
	Kind  InputKind       `json:"kind"`
	Bytes []byte          `json:"base64,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Secret keeps Data out of the log.
	Secret bool `json:"secret,omitempty"`
	// Seq is that of the input event, for the engine. The host sets it.
	Seq Seq `json:"-"`
}

// Logged reports whether the input becomes an event. Standard input does not:
// the log of a process holds what the process did.
func (in *Input) Logged() bool { return in.Kind != InputStdin && in.Kind != InputEOF }

// Receipt acknowledges an input.
type Receipt struct {
	Seq      Seq  `json:"seq,omitempty"`      // of the input event, where the run logs its input
	Repeated bool `json:"repeated,omitempty"` // the ID was known; nothing was applied
}

// ControlOp is what a control does.
type ControlOp string

// The controls every run understands, as far as they make sense for it.
const (
	ControlInterrupt ControlOp = "interrupt" // as Ctrl-C would
	ControlSignal    ControlOp = "signal"    // Signal, to the leader's process group
	ControlResize    ControlOp = "resize"    // the terminal to Size
	ControlStop      ControlOp = "stop"      // SIGTERM, Grace, then kill
	ControlKill      ControlOp = "kill"      // the whole tree, now
	ControlRestart   ControlOp = "restart"   // begin again with a fresh state
)

// Control acts on a run at once.
type Control struct {
	Op     ControlOp     `json:"op"`
	Signal string        `json:"signal,omitempty"`
	Size   Size          `json:"size,omitzero"`
	Grace  time.Duration `json:"grace_ms,omitempty"` // zero means the run's own
	// Turn restricts it to that turn. A turn that is over is left alone, one
	// that waits is cancelled, and a control that arrives before its turn is
	// kept for it. The run itself goes on.
	Turn Seq `json:"turn,omitempty"`
	// By is who asks for it, for the log. A server with subjects fills in its
	// own.
	By string `json:"by,omitempty"`
	// ID makes it idempotent: one that is repeated with its ID is done once, also
	// if it is a signal.
	ID string `json:"id,omitempty"`
}

// Digest names a blob by its content: "sha256:" and 64 hex digits.
type Digest string

// Blob describes a large value that lives beside the log.
type Blob struct {
	Digest Digest `json:"blob"`
	Size   int64  `json:"size_bytes"`
	MIME   string `json:"mime,omitempty"`
}
