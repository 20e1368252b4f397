package spool

import (
	"context"
	"time"
)

// Meter is a [Backend] that can tell what the processes of live runs use. The
// backends of packages local and client are Meters, unless the server is an older
// one.
type Meter interface {
	// Measure returns what live runs use now; of all if ids is empty. Runs
	// without processes are left out.
	Measure(ctx context.Context, ids []RunID) ([]Resources, error)
}

// Resources is what the processes of a run use at one moment.
type Resources struct {
	Run       RunID     `json:"run"`
	Time      time.Time `json:"time"`
	Processes int       `json:"processes"`
	// CPUMs is the time that live processes, and their children that ended,
	// spent on a processor since they began.
	CPUMs  int64 `json:"cpu_ms"`
	Memory int64 `json:"memory_bytes"`
	// Read and Written are what live processes read from disks and wrote to
	// them.
	Read    int64 `json:"read_bytes"`
	Written int64 `json:"written_bytes"`
	Logged  int64 `json:"logged_bytes"` // output in the log
	// Source is cgroup or proc: how the processes of the run were found.
	Source string `json:"source,omitempty"`
}
