package spool

import (
	"encoding/json"
	"fmt"
	"time"
)

// RunID names a run: 1 to 128 of the characters a-z and 0-9. It is never used
// again within a state directory. Where a person types it, any unique prefix
// will do; see [Find].
type RunID string

// maxIDLength bounds a RunID.
const maxIDLength = 128

// Check returns [ErrInvalid] for an id that no run can have.
func (id RunID) Check() error {
	if len(id) == 0 || len(id) > maxIDLength {
		return fmt.Errorf("%w: run id of %d bytes", ErrInvalid, len(id))
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("%w: run id %q has other characters than a-z and 0-9", ErrInvalid, string(id))
		}
	}
	return nil
}

// Seq is the position of an event in its run's log: 1, 2, 3 … without holes.
// Zero means "before the first event" in a cursor. In an event it marks one
// that is not in the log at all, such as a lost connection seen by a client.
type Seq uint64

// Kind says what an event reports.
type Kind string

// The kinds of event that do not belong to one engine; packages python and agent
// have more. A reader that meets a kind it does not know must pass over it:
// kinds are only ever added.
const (
	KindStarted   Kind = "started"   // the engine is ready; see agent.Started
	KindInput     Kind = "input"     // Data is a [Said]; begins a turn or answers an ask
	KindOutput    Kind = "output"    // Bytes of Stream
	KindAsk       Kind = "ask"       // Data is an [Ask]
	KindNotice    Kind = "notice"    // Data is a [Notice]
	KindDone      Kind = "done"      // Data is a [Done]; ends a turn
	KindTruncated Kind = "truncated" // Data is a [Truncation]
	KindResized   Kind = "resized"   // Data is a [Resized]
	KindExited    Kind = "exited"    // the run ended; see [Event.Outcome]
	KindFailed    Kind = "failed"    // the run ended; see [Event.Outcome]
	KindClosed    Kind = "closed"    // the last event of every log
)

// Stream says where output bytes came from.
type Stream string

// The streams of a process.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	PTY    Stream = "pty"
)

// MaxEventBytes bounds Bytes and Data of one event together. Larger values
// belong into a blob.
const MaxEventBytes = 16 << 20

// Event is one entry of a run's log. It is immutable once appended: readers
// must not change the contents of Bytes and Data.
type Event struct {
	Run    RunID
	Seq    Seq
	Time   time.Time
	Kind   Kind
	Turn   Seq             // seq of the input that caused it; zero outside turns
	Stream Stream          // of an output event
	Bytes  []byte          // what was read, exactly
	Data   json.RawMessage // structured payload, a JSON value
}

// Size is what the event counts against byte limits.
func (e *Event) Size() int { return len(e.Bytes) + len(e.Data) }

// Truncation is the payload of a truncated event. It stands either for events
// that no longer exist, those with From ≤ seq ≤ To, or for output that a run
// dropped at this point because it reached its limit.
type Truncation struct {
	From Seq `json:"from,omitempty"`
	To   Seq `json:"to,omitempty"`
	// DroppedBytes is how much of each stream was dropped, and LimitBytes
	// the limit on the output of the run.
	DroppedBytes map[Stream]int64 `json:"dropped_bytes,omitempty"`
	LimitBytes   int64            `json:"limit_bytes,omitempty"`
}

// Resized is the payload of a resized event: the terminal of the run has another
// size from here on. The one it began with is [Info.FirstSize].
type Resized struct {
	Size
	// Was is the size before, for a reader that goes backwards.
	Was Size `json:"was,omitzero"`
	// By is who did it, if that is known; see [Control.By].
	By string `json:"by,omitempty"`
}

// Notice is the payload of a notice event: something worth knowing that is
// not part of what the run produced.
type Notice struct {
	Code string `json:"code"`
	Text string `json:"text"`
	// Level is debug, info, warning or error; empty means info.
	Level string `json:"level,omitempty"`
	// Ask is the one a notice with [NoticeAskClosed] speaks of.
	Ask Seq `json:"ask,omitempty"`
	// By is who answered that one, if the run did not wait for anybody.
	By string `json:"by,omitempty"`
	// Data is what it is about; what was not understood is kept here.
	Data json.RawMessage `json:"data,omitempty"`
}
