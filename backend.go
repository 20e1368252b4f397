package spool

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"time"
)

// Backend runs things and keeps their logs. The local host, the remote
// client and the cluster all are one; every wire and the command line are
// written once, against it.
type Backend interface {
	// Start begins a run. It returns once the run really started, or with
	// a [*StartError].
	Start(ctx context.Context, spec Spec) (Info, error)
	// Stat describes a run now.
	Stat(ctx context.Context, id RunID) (Info, error)
	// List yields the runs that match, newest first.
	List(ctx context.Context, f Filter) iter.Seq2[Info, error]
	// Read returns the events after a cursor, waiting for one if asked to.
	Read(ctx context.Context, id RunID, q Query) (Page, error)
	// Follow yields every event after a cursor, history and live alike,
	// and ends after the closed event.
	Follow(ctx context.Context, id RunID, after Seq) iter.Seq2[Event, error]
	// Send delivers input, in order, once per Input.ID.
	Send(ctx context.Context, id RunID, in Input) (Receipt, error)
	// Control acts on the run at once, ahead of any input.
	Control(ctx context.Context, id RunID, c Control) error
	// Blob opens a large value that an event of the run refers to.
	Blob(ctx context.Context, id RunID, d Digest) (io.ReadCloser, error)
}

// Streamer is a [Backend] that can follow a run without leaving garbage.
type Streamer interface {
	// Stream is Follow, but an event is only lent: what its Bytes and Data
	// point at is used again once the next event is asked for.
	Stream(ctx context.Context, id RunID, after Seq) iter.Seq2[Event, error]
}

// Query says what to read. A zero MaxBytes means [DefaultPageBytes].
type Query struct {
	After    Seq           `json:"after,omitempty"`
	MaxBytes int           `json:"maxBytes,omitempty"`
	Wait     time.Duration `json:"wait,omitempty"` // for the first event, if there is none yet
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
	Bytes []byte          `json:"bytes,omitempty"`
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
	Grace  time.Duration `json:"grace,omitempty"` // zero means the run's own
	// Turn restricts it to that turn: if it is over, nothing happens.
	Turn Seq `json:"turn,omitempty"`
}

// Digest names a blob by its content: "sha256:" and 64 hex digits.
type Digest string

// Blob describes a large value that lives beside the log.
type Blob struct {
	Digest Digest `json:"blob"`
	Size   int64  `json:"size"`
	MIME   string `json:"mime,omitempty"`
}
