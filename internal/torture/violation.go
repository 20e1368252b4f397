package torture

import (
	"fmt"
	"time"
)

// Kind names the broken promise.
type Kind string

// The kinds of violation.
const (
	Lost       Kind = "lost"         // a written record was not delivered
	Repeated   Kind = "repeated"     // a record or event was delivered more than once
	Reordered  Kind = "reordered"    // a record was delivered out of order
	Corrupted  Kind = "corrupted"    // a record differs from what was written
	Invented   Kind = "invented"     // a record or event that was never written
	WrongExit  Kind = "wrong exit"   // the outcome is not what happened
	Unknown    Kind = "unknown"      // the outcome is unknown without an excuse
	BadReplay  Kind = "replay"       // the log differs when read again
	BadInput   Kind = "input"        // acknowledged input was not applied once
	NeverEnded Kind = "never ended"  // the end of the run was not delivered
	Running    Kind = "left running" // processes outlived their run
	Refused    Kind = "refused"      // a request failed without an excuse
	Memory     Kind = "memory"       // the server uses too much memory
	Died       Kind = "server died"  // the server ended by itself
)

// kinds lists all kinds in the order of the report.
var kinds = []Kind{Lost, Repeated, Reordered, Corrupted, Invented, WrongExit, Unknown, BadReplay, BadInput, NeverEnded, Running, Refused, Memory, Died}

// Violation is one broken promise.
type Violation struct {
	Kind   Kind   `json:"kind"`
	Run    string `json:"run,omitempty"`
	ID     string `json:"id,omitempty"` // the server's id of the run
	Via    string `json:"via,omitempty"`
	Detail string `json:"detail"`
	AtMs   int64  `json:"at_ms,omitempty"` // since the start
	when   time.Time
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s: %s", v.Kind, v.Detail)
	if v.Run != "" {
		s = fmt.Sprintf("%s: run %s, %s %s: %s", v.Kind, v.Run, v.Via, v.ID, v.Detail)
	}
	if v.AtMs != 0 {
		s += fmt.Sprintf(" (at %v)", time.Duration(v.AtMs)*time.Millisecond)
	}
	return s
}
