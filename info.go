package spool

import (
	"fmt"
	"time"
)

// State is where a run is in its life.
type State string

// The states of a run, in order.
const (
	StateRunning State = "running" // the leader lives
	StateExited  State = "exited"  // the leader ended; its streams are still open
	StateClosed  State = "closed"  // nothing will be appended any more
)

// Info describes a run at one moment.
type Info struct {
	ID      RunID             `json:"id"`
	Name    string            `json:"name,omitempty"`
	Engine  string            `json:"engine"`
	Labels  map[string]string `json:"labels,omitempty"`
	Argv    []string          `json:"argv,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	TTY     bool              `json:"tty,omitempty"`
	Pid     int               `json:"pid,omitempty"`
	Owner   string            `json:"owner,omitempty"` // the host that writes the log
	Created time.Time         `json:"created"`
	Ended   time.Time         `json:"ended,omitzero"`
	State   State             `json:"state"`
	Outcome *Outcome          `json:"outcome,omitempty"` // nil until it is known, or known to be unknowable
	Last    Seq               `json:"last"`              // highest seq assigned so far
	Bytes   int64             `json:"bytes"`             // output bytes logged
}

// OutcomeKind is how a run ended.
type OutcomeKind string

// The ways a run can end.
const (
	Exited  OutcomeKind = "exited"  // a wait status was reaped
	Failed  OutcomeKind = "failed"  // it did not work, for a known reason
	Unknown OutcomeKind = "unknown" // nobody can know; never a guess
)

// Outcome is the end of a run. Only a reaped wait status makes it Exited.
type Outcome struct {
	Kind   OutcomeKind `json:"kind"`
	Code   int         `json:"code"`
	Signal string      `json:"signal,omitempty"`
	Reason string      `json:"reason,omitempty"`
}

// ExitCode is the code a command that stands for the run should exit with:
// the run's own, or 125 when it has none.
func (o Outcome) ExitCode() int {
	if o.Kind == Exited {
		return o.Code
	}
	return 125
}

func (o Outcome) String() string {
	switch {
	case o.Kind == Exited && o.Signal != "":
		return fmt.Sprintf("exited %d (%s)", o.Code, o.Signal)
	case o.Kind == Exited:
		return fmt.Sprintf("exited %d", o.Code)
	case o.Reason != "":
		return fmt.Sprintf("%s: %s", o.Kind, o.Reason)
	}
	return string(o.Kind)
}
