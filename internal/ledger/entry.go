// Package ledger adds up what runs used, from their descriptions: it reads no
// logs, so that it costs what a list costs.
package ledger

import (
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Entry is all that is known of what one run used. What is not known is nil.
type Entry struct {
	Run     spool.RunID   `json:"run"`
	Subject string        `json:"subject,omitempty"` // who started it; empty for the owner
	Created time.Time     `json:"created"`
	Ended   time.Time     `json:"ended,omitzero"`
	WallMs  *int64        `json:"wall_ms,omitempty"` // until now, of a live run
	Output  int64         `json:"output_bytes"`
	Ledger  *spool.Ledger `json:"ledger,omitempty"`
}

// Of returns the entry of a run at a time. When a run ended that was lost is not
// known, nor how long it took.
func Of(info *spool.Info, now time.Time) Entry {
	e := Entry{Run: info.ID, Subject: Subject(info), Created: info.Created, Ended: info.Ended, Output: info.Bytes, Ledger: info.Ledger}
	switch {
	case info.Outcome != nil && info.Outcome.Kind == spool.Unknown:
		return e
	case !info.Ended.IsZero():
		now = info.Ended
	}
	ms := max(0, now.Sub(info.Created).Milliseconds())
	e.WallMs = &ms
	return e
}

// Subject returns the name of the subject that started a run; it is empty for the
// owner of the machine.
func Subject(info *spool.Info) string { return info.Labels[record.LabelSubject] }

// Failed reports whether a run ended, and not well. A run whose outcome is unknown
// did not fail as far as anybody knows. A kernel or an agent that exits well failed
// if its last turn did.
func Failed(info *spool.Info) bool {
	o := info.Outcome
	switch {
	case o == nil || o.Kind == spool.Unknown:
		return false
	case o.ExitCode() != 0:
		return true
	}
	return info.TurnOutcome != "" && info.TurnOutcome != spool.TurnOK
}

// Outcome says in a word or two how a run ended, or its state.
func Outcome(info *spool.Info) string {
	switch o := info.Outcome; {
	case o == nil:
		return string(info.State)
	case o.Kind != spool.Exited:
		return string(o.Kind)
	default:
		return spool.Outcome{Kind: o.Kind, Code: o.Code, Signal: o.Signal}.String()
	}
}
