package lens

import (
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
)

// The kinds of a [Mark].
const (
	MarkTurn      = "turn"      // a cell or a prompt
	MarkAsk       = "ask"       // a question, which may be answered by now
	MarkException = "exception" // of a cell
	MarkFailed    = "failed"    // an action or a turn that did not end well
	MarkResized   = "resized"   // the terminal has another size
	MarkEnd       = "end"       // the run ended
	MarkTruncated = "truncated" // output or events are missing
)

// Mark is an event that somebody who looks for a place in a log may look for.
type Mark struct {
	Seq  spool.Seq
	Time time.Time
	Kind string
	// Line is the number of the line before which something is missing, and
	// Truncation what; only of [MarkTruncated].
	Line       int64
	Truncation *spool.Truncation
}

// markOf returns the mark of an event, if it has one.
func markOf(e *spool.Event) (Mark, bool) {
	m := Mark{Seq: e.Seq, Time: e.Time}
	switch e.Kind {
	case spool.KindInput:
		var said struct {
			Kind spool.InputKind `json:"kind"`
		}
		if json.Unmarshal(e.Data, &said) == nil && (said.Kind == spool.InputCell || said.Kind == spool.InputPrompt) {
			m.Kind = MarkTurn
		}
	case spool.KindAsk:
		m.Kind = MarkAsk
	case "exception":
		m.Kind = MarkException
	case "action":
		var action struct {
			OK *bool `json:"ok"`
		}
		if json.Unmarshal(e.Data, &action) == nil && action.OK != nil && !*action.OK {
			m.Kind = MarkFailed
		}
	case spool.KindDone:
		var done struct {
			Outcome spool.TurnOutcome `json:"outcome"`
		}
		if json.Unmarshal(e.Data, &done) == nil && done.Outcome != "" && done.Outcome != spool.TurnOK {
			m.Kind = MarkFailed
		}
	case spool.KindResized:
		m.Kind = MarkResized
	case spool.KindExited, spool.KindFailed:
		m.Kind = MarkEnd
	case spool.KindTruncated:
		m.Truncation = new(spool.Truncation)
		if json.Unmarshal(e.Data, m.Truncation) == nil {
			m.Kind = MarkTruncated
		}
	}
	return m, m.Kind != ""
}
