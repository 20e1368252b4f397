package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is the result of a torture.
type Report struct {
	Seed       uint64 `json:"seed"`
	Server     string `json:"server"`
	Keeper     bool   `json:"keeper"` // runs outlive their server
	DurationMs int64  `json:"duration_ms"`

	Faults      map[Fault]int `json:"faults"`
	Skipped     map[Fault]int `json:"skipped,omitempty"` // faults without a target
	Disconnects int64         `json:"disconnects"`
	Resumes     int64         `json:"resumes"`
	Kills       int64         `json:"kills"` // of the server
	Restart     Latency       `json:"restart_ms"`

	Runs       int64 `json:"runs"`
	Exited     int64 `json:"exited"`
	Excused    int64 `json:"unknown_excused"`
	LostStarts int64 `json:"lost_starts"` // requests that never reached the server
	Refused    int64 `json:"refused_excused"`
	Audited    int64 `json:"audited"` // read again over a new connection at the end
	Events     int64 `json:"events"`
	Bytes      int64 `json:"bytes"`
	Late       int64 `json:"out_of_order_pushes"`
	PeakRSS    int64 `json:"peak_rss_bytes"`

	Unfinished string         `json:"unfinished,omitempty"` // the goal that was not reached
	Violations map[Kind]int64 `json:"violations"`
	Details    []Violation    `json:"details,omitempty"` // the first violations
}

// Latency is a distribution of durations in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

// Failed reports whether a promise was broken or a goal was not reached.
func (r *Report) Failed() bool { return len(r.Violations) > 0 || r.Unfinished != "" }

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteTable writes the report as text.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-26s %s\n", name, fmt.Sprintf(format, args...))
	}
	keeper := ""
	switch {
	case r.Keeper:
		keeper = " (runs outlive it)"
	case r.Kills > 0:
		keeper = " (runs end with it)"
	}
	row("server", "%s%s", r.Server, keeper)
	row("seed", "%d", r.Seed)
	row("time", "%s", (time.Duration(r.DurationMs) * time.Millisecond).Round(time.Second/10))
	for _, f := range Faults {
		if r.Faults[f]+r.Skipped[f] == 0 {
			continue
		}
		skipped := ""
		if n := r.Skipped[f]; n > 0 {
			skipped = fmt.Sprintf("   (%d skipped: no target)", n)
		}
		row("fault "+string(f), "%d%s", r.Faults[f], skipped)
	}
	row("disconnects", "%d, sessions resumed %d", r.Disconnects, r.Resumes)
	if r.Kills > 0 {
		row("server kills", "%d, back after %.0f ms (p50), %.0f ms (max)", r.Kills, r.Restart.P50, r.Restart.Max)
	}
	row("runs", "%d: %d exited, %d unknown, excused by a fault", r.Runs, r.Exited, r.Excused)
	row("starts", "%d did not reach the server, %d refused, excused by a fault", r.LostStarts, r.Refused)
	row("events", "%d, %d of them pushed out of order", r.Events, r.Late)
	row("bytes", "%d", r.Bytes)
	row("audited", "%d runs", r.Audited)
	row("memory peak", "%.1f MiB", float64(r.PeakRSS)/(1<<20))
	b.WriteString("\n")
	for _, k := range kinds {
		row("violations: "+string(k), "%d", r.Violations[k])
	}
	if r.Unfinished != "" {
		fmt.Fprintf(&b, "\nnot finished: %s\n", r.Unfinished)
	}
	if len(r.Details) > 0 {
		fmt.Fprintf(&b, "\nthe first violations; --seed %d repeats the schedule:\n", r.Seed)
		for _, v := range r.Details {
			fmt.Fprintf(&b, "  %s\n", v)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
