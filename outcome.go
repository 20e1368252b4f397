package spool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// OutcomeKind is how a run ended.
type OutcomeKind string

// The ways a run can end.
const (
	Exited  OutcomeKind = "exited"  // a wait status was reaped
	Failed  OutcomeKind = "failed"  // it did not work, for a known reason
	Unknown OutcomeKind = "unknown" // the exit status is lost; never a guess
)

// Outcome is the end of a run. Only a reaped wait status makes it Exited.
type Outcome struct {
	Kind   OutcomeKind `json:"kind"`
	Code   int         `json:"code"`             // the exit code, or 128 and the number of the signal
	Signal string      `json:"signal,omitempty"` // such as SIGTERM, if a signal ended the run
	Reason string      `json:"reason,omitempty"` // why the run failed, its outcome is unknown, or a limit ended it
}

// ExitCode is the code a command that stands for the run should exit with:
// the run's own, 124 when a time limit ended it, or 125 when it has none. A
// kernel that exited with 0 because it had no cell for its idle time ended well.
func (o Outcome) ExitCode() int {
	switch {
	case o.Kind == Exited && strings.HasPrefix(o.Reason, "timed out") && (o.Code != 0 || !strings.HasSuffix(o.Reason, "without a cell")):
		return 124
	case o.Kind == Exited:
		return o.Code
	}
	return 125
}

func (o Outcome) String() string {
	text := string(o.Kind)
	if o.Kind == Exited {
		text += " " + strconv.Itoa(o.Code)
		if o.Signal != "" {
			text += " (" + o.Signal + ")"
		}
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// exitStatus is the payload of an exited event: what wait(2) said.
type exitStatus struct {
	Code   int    `json:"code"`             // exit code, or 128+N for signal N
	Signal string `json:"signal,omitempty"` // "SIGKILL" when a signal ended it
	Reason string `json:"reason,omitempty"` // "timed out after 1s" when a limit ended it
}

// failure is the payload of a failed event.
type failure struct {
	Reason string `json:"reason"`
	// Unknown is set when the exit status of the run is lost, as opposed to
	// knowing that it did not work.
	Unknown bool `json:"unknown,omitempty"`
}

// Event returns the event that reports the outcome, for an engine to append:
// exited or failed. [Event.Outcome] is the inverse.
func (o Outcome) Event() Event {
	if o.Kind != Exited {
		data, err := json.Marshal(failure{o.Reason, o.Kind == Unknown})
		if err != nil { // two plain fields always encode
			panic(err)
		}
		return Event{Kind: KindFailed, Data: data}
	}
	// Every run has one of these.
	data := append(make([]byte, 0, 40), `{"code":`...)
	data = strconv.AppendInt(data, int64(o.Code), 10)
	data = appendMember(data, `,"signal":`, o.Signal)
	data = appendMember(data, `,"reason":`, o.Reason)
	return Event{Kind: KindExited, Data: append(data, '}')}
}

// Outcome returns what an exited or failed event says about how the run
// ended, and false for every other event.
func (e *Event) Outcome() (Outcome, bool) {
	switch e.Kind {
	case KindExited:
		if code, ok := plainExit(e.Data); ok {
			return Outcome{Kind: Exited, Code: code}, true
		}
		var s exitStatus
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return Outcome{Kind: Unknown, Reason: fmt.Sprintf("exit status does not decode: %v", err)}, true
		}
		return Outcome{Kind: Exited, Code: s.Code, Signal: s.Signal, Reason: s.Reason}, true
	case KindFailed:
		var f failure
		if err := json.Unmarshal(e.Data, &f); err != nil {
			return Outcome{Kind: Unknown, Reason: fmt.Sprintf("failure does not decode: %v", err)}, true
		}
		if f.Unknown {
			return Outcome{Kind: Unknown, Reason: f.Reason}, true
		}
		return Outcome{Kind: Failed, Reason: f.Reason}, true
	}
	return Outcome{}, false
}

// plainExit reads an exit status that is nothing but a code, in the form in
// which it is written: it is looked at several times in the life of a short
// run.
func plainExit(data []byte) (code int, ok bool) {
	digits, found := bytes.CutPrefix(data, []byte(`{"code":`))
	digits, closed := bytes.CutSuffix(digits, []byte("}"))
	if !found || !closed || len(digits) == 0 || len(digits) > 3 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		code = 10*code + int(c-'0')
	}
	return code, true
}
