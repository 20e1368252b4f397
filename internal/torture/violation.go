package torture

import (
	"fmt"
	"time"
)

// Kind says which promise was broken.
type Kind string

// The kinds of violation.
const (
	Lost       Kind = "lost"         // what was written was not delivered
	Repeated   Kind = "repeated"     // it was delivered more than once
	Reordered  Kind = "reordered"    // it came out of order
	Corrupted  Kind = "corrupted"    // it is not what was written
	Invented   Kind = "invented"     // nobody wrote it
	WrongExit  Kind = "wrong exit"   // the outcome is not what happened
	Unknown    Kind = "unknown"      // the outcome is unknown, and no fault excuses it
	BadReplay  Kind = "replay"       // the log reads differently afterwards
	BadInput   Kind = "input"        // acknowledged input was not applied once
	NeverEnded Kind = "never ended"  // the end of the run was not told
	Running    Kind = "left running" // processes outlived their run
	Refused    Kind = "refused"      // a request failed, and no fault excuses it
	Memory     Kind = "memory"       // the server holds too much
	Died       Kind = "server died"  // of itself
)

// kinds are all of them, in the order of the report.
var kinds = []Kind{Lost, Repeated, Reordered, Corrupted, Invented, WrongExit, Unknown, BadReplay, BadInput, NeverEnded, Running, Refused, Memory, Died}

// Violation is one broken promise.
type Violation struct {
	Kind    Kind   `json:"kind"`
	Run     string `json:"run,omitempty"`
	ID      string `json:"id,omitempty"` // what the server calls the run
	Via     string `json:"via,omitempty"`
	Detail  string `json:"detail"`
	Seconds string `json:"at,omitempty"` // since the beginning
	when    time.Time
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s: %s", v.Kind, v.Detail)
	if v.Run != "" {
		s = fmt.Sprintf("%s: run %s, %s %s: %s", v.Kind, v.Run, v.Via, v.ID, v.Detail)
	}
	if v.Seconds != "" {
		s += " (at " + v.Seconds + ")"
	}
	return s
}
