package spool

import (
	"encoding/json"
	"time"
)

// State is where a run is in its life.
type State string

// The states of a run, in order.
const (
	StateQueued  State = "queued"  // it waits for a node of a cluster that has room
	StateRunning State = "running" // the process that was started is alive
	StateExited  State = "exited"  // that process ended; others still hold its output open
	StateClosed  State = "closed"  // nothing will be appended any more
	// StateRemoved is what [Watcher] says of a run that is gone; no other description
	// has it.
	StateRemoved State = "removed"
)

// OpenAsks are the questions of a run that wait for an answer.
type OpenAsks struct {
	// Open are the seqs of their events, the oldest first and at most 16.
	Open  []Seq `json:"open"`
	Count int   `json:"count"`
}

// Mirror is a copy of the log of a run that another machine of a cluster makes while the
// run goes on.
type Mirror struct {
	Node string `json:"node"` // the machine that has the copy
	Last Seq    `json:"last"` // last event that it is known to have
	// LagMs is for how many milliseconds it has not been known to have all events
	// of the run; zero if it is.
	LagMs int64 `json:"lag_ms"`
}

// Info describes a run at one moment.
type Info struct {
	ID     RunID             `json:"id"`
	Name   string            `json:"name,omitempty"`
	Engine string            `json:"engine"`
	Labels map[string]string `json:"labels,omitempty"`
	Argv   []string          `json:"argv,omitempty"`
	Cwd    string            `json:"cwd,omitempty"`
	TTY    bool              `json:"tty,omitempty"`
	// Size is the size of the terminal as it is now, or was at the end, and
	// FirstSize the one it began with; both are zero without a terminal. A
	// program that sets the size of its own terminal changes neither.
	Size      Size   `json:"size,omitzero"`
	FirstSize Size   `json:"first_size,omitzero"`
	Pid       int    `json:"pid,omitempty"`
	Owner     string `json:"owner,omitempty"` // the process that writes the log
	Node      string `json:"node,omitempty"`  // the machine of a cluster that has the run
	// Mirror is the copy of the log that another machine of the cluster makes; nil
	// without one.
	Mirror  *Mirror   `json:"mirror,omitempty"`
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended,omitzero"`
	State   State     `json:"state"`
	Outcome *Outcome  `json:"outcome,omitempty"` // nil until the run has ended
	Last    Seq       `json:"last"`              // highest seq assigned so far
	Bytes   int64     `json:"bytes"`             // output bytes logged
	// Title is the first line of the code or prompt that began the last turn,
	// and TurnOutcome how the last turn that is done ended.
	Title       string      `json:"title,omitempty"`
	TurnOutcome TurnOutcome `json:"turn_outcome,omitempty"`
	// Turn is the one that runs, or that runs next if its run is still busy with
	// its start; zero if the run is idle or has ended. Asks are the open ones,
	// nil without any. Both may be a moment older than Last.
	Turn Seq       `json:"turn,omitempty"`
	Asks *OpenAsks `json:"asks,omitempty"`
	// Ledger is what the run used; nil until it has ended, and if that is not
	// known.
	Ledger *Ledger `json:"ledger,omitempty"`
	// Isolation is what the run is kept from, and how; nil without a request.
	Isolation *Isolation `json:"isolation,omitempty"`
	// Workspace is the one of the run; nil without.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Details are what the engine says about the run: for kernels and
	// sandboxes a python.Details, for processes with a terminal its size, as
	// {"terminal":{"rows":24,"cols":80}}. Only [Backend.Stat] fills them in.
	Details json.RawMessage `json:"details,omitempty"`
}
