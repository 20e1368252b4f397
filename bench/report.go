package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"
)

// unit is the unit of a displayed value.
type unit int

const (
	unitCount unit = iota
	unitTime       // in seconds
	unitCPU        // in seconds
	unitRate       // in bytes per second
	unitBytes
	unitShare // of one processor
)

func (u unit) String() string {
	return [...]string{"count", "seconds", "CPU seconds", "bytes per second", "bytes", "share of a processor"}[u]
}

// format formats a value with about three digits.
func (u unit) format(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case math.IsInf(v, 1):
		return "never"
	case u == unitTime && v < 1:
		return digits(v*1e3) + " ms"
	case u == unitTime, u == unitCPU:
		return digits(v) + " s"
	case u == unitRate:
		return digits(v/1e6) + " MB/s"
	case u == unitBytes && math.Abs(v) < 1<<20:
		return digits(v/(1<<10)) + " KiB"
	case u == unitBytes:
		return digits(v/(1<<20)) + " MiB"
	case u == unitShare:
		return digits(v*100) + " %"
	case v >= 1e6:
		return digits(v/1e6) + " M"
	}
	return digits(v)
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// result is a measured row.
type result struct {
	Label   string   `json:"label"`
	Metric  string   `json:"metric"`
	Stat    string   `json:"stat"`
	Unit    string   `json:"unit"`
	Spool   *float64 `json:"spool"` // null without a sample
	Other   *float64 `json:"other"`
	Against string   `json:"against"` // describes Other
	Ratio   *float64 `json:"ratio,omitempty"`
	Goal    string   `json:"goal,omitempty"`
	OK      *bool    `json:"ok,omitempty"`

	row          *row
	spool, other float64
	verdict      verdict
	spread       string // of Spool's samples
}

// report is the complete result.
type report struct {
	Time        time.Time `json:"time"`
	Go          string    `json:"go"`
	CPUs        int       `json:"cpus"`
	Kernel      string    `json:"kernel"`
	Codex       string    `json:"codex"`
	Rounds      int       `json:"rounds"`
	Quick       bool      `json:"quick"`
	BesideCodex []result  `json:"besideCodex"`
	SpoolAlone  []result  `json:"spoolAlone"`
	Kernels     []result  `json:"kernels"`
	Sandboxes   []result  `json:"sandboxes"`
	Isolation   []result  `json:"isolation"`
	Agents      []result  `json:"agents"`
	Growth      []result  `json:"growth"`
	SDKs        []result  `json:"sdks"`
	Console     []result  `json:"console"`
	HTTP        []result  `json:"http"`
	HTTPNotes   []string  `json:"httpNotes,omitempty"` // what is missing of it, and why

	Peers     []peerResult                   `json:"peers,omitempty"`
	Honesty   map[string]map[string]*honesty `json:"honesty,omitempty"`  // by scenario and peer
	Versions  map[string]string              `json:"versions,omitempty"` // of the measured peers
	Absent    map[string]string              `json:"absent,omitempty"`   // peers that cannot be installed, with the reason
	Load      float64                        `json:"load"`               // of the last minute, before the measurements
	LoadAfter float64                        `json:"loadAfter"`          // and after them
	Stolen    float64                        `json:"stolen"`             // part of the processor time that the hypervisor gave to others meanwhile

	field *peerBench // nil without peers
}

func (b *bench) report() *report {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown\n")
	}
	r := &report{
		Load: b.load, LoadAfter: loadAverage(), Stolen: readMachineTime().stolenSince(b.began),
		Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Kernel: string(kernel[:len(kernel)-1]), Codex: b.version, Rounds: b.rounds, Quick: b.quick,
		BesideCodex: b.results(besideCodex), SpoolAlone: b.results(spoolAlone), Kernels: b.results(kernels),
		Sandboxes: b.results(sandboxes), Isolation: b.results(isolationRows), Agents: b.results(agentRows), Growth: b.results(growthRows), SDKs: b.results(sdkRows),
		Console: b.results(consoleRows), HTTP: b.results(httpRows), HTTPNotes: b.httpNotes(),
	}
	b.fillPeers(r)
	return r
}

// loadAverage returns the load of the last minute, or zero if it is not known.
func loadAverage() (load float64) {
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(b), &load)
	}
	if err != nil {
		return 0
	}
	return load
}

// results returns the rows that have samples.
func (s samples) results(rows []row) []result {
	var out []result
	for i := range rows {
		r := &rows[i]
		subject, metric := r.other()
		ours, other := s.value(subjectSpool, r.metric, r.stat), s.value(subject, metric, r.stat)
		if math.IsNaN(ours) {
			continue
		}
		res := r.result(ours, other, subject+" "+metric)
		res.spread = r.unit.format(s.value(subjectSpool, r.metric, lowest)) + " – " + r.unit.format(s.value(subjectSpool, r.metric, most))
		out = append(out, res)
	}
	return out
}

func (r *row) result(ours, other float64, against string) result {
	res := result{
		Label: r.label, Metric: r.metric, Stat: r.stat.name, Unit: r.unit.String(), Against: against,
		Spool: finite(ours), Other: finite(other), row: r, spool: ours, other: other,
	}
	judged := ours
	switch r.ratio {
	case faster:
		judged = other / ours
		res.Ratio = finite(judged)
	case fraction:
		judged = ours / other
		res.Ratio = finite(judged)
	}
	if math.IsNaN(judged) || r.goal == (bound{}) {
		return res
	}
	res.verdict = r.goal.verdict(judged)
	ok := res.verdict != missed
	res.Goal, res.OK = r.formatGoal(), &ok
	return res
}

// finite returns nil for a value that JSON cannot represent.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (r *row) formatGoal() string {
	if r.ratio == noRatio {
		return r.goal.format(r.unit.format)
	}
	return r.goal.format(func(v float64) string { return fmt.Sprintf("%.4g×", v) })
}

// missed counts the missed goals.
func (r *report) missed() int {
	n := 0
	for _, table := range [][]result{r.BesideCodex, r.SpoolAlone, r.Kernels, r.Sandboxes, r.Isolation, r.Agents, r.Growth, r.SDKs, r.Console, r.HTTP} {
		for i := range table {
			if ok := table[i].OK; ok != nil && !*ok {
				n++
			}
		}
	}
	for i := range r.Peers {
		if r.Peers[i].Met == missed.String() {
			n++
		}
	}
	return n
}

func (r *report) writeTable(w io.Writer) error {
	reference := ""
	if r.Codex != "" {
		reference = " beside " + r.Codex
	}
	fmt.Fprintf(w, "\nSpool%s: %s, %d CPUs, Linux %s, %d rounds, %.1f %% of the processor time taken by the hypervisor\n", reference, r.Go, r.CPUs, r.Kernel, r.Rounds, 100*r.Stolen)
	if err := writeResults(w, "same client, same protocol", "codex", r.BesideCodex); err != nil {
		return err
	}
	if err := writeResults(w, "Spool alone", "beside", r.SpoolAlone); err != nil {
		return err
	}
	if err := writeResults(w, "Python that stays alive", "ipykernel", r.Kernels); err != nil {
		return err
	}
	if err := writeResults(w, "Python in a box", "native", r.Sandboxes); err != nil {
		return err
	}
	if err := writeResults(w, "Isolated runs", "bubblewrap", r.Isolation); err != nil {
		return err
	}
	if err := writeResults(w, "Conversations with agents", "by hand", r.Agents); err != nil {
		return err
	}
	if err := writeResults(w, "With many finished runs", "with 1000", r.Growth); err != nil {
		return err
	}
	if err := writeResults(w, "Clients for other languages", "", r.SDKs); err != nil {
		return err
	}
	if err := writeResults(w, "The console in Chromium", "asciinema", r.Console); err != nil {
		return err
	}
	if err := writeResults(w, "spool serve", "beside", r.HTTP); err != nil {
		return err
	}
	for _, note := range r.HTTPNotes {
		fmt.Fprintf(w, "- %s\n", note)
	}
	return r.writePeers(w)
}

func writeResults(w io.Writer, title, other string, results []result) error {
	if len(results) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "\n%s\tspool\t%s\tratio\tgoal\t\n", title, other)
	for i := range results {
		res := &results[i]
		ratio, verdict := "", ""
		if res.Ratio != nil {
			ratio = digits(*res.Ratio) + "×"
		}
		if res.OK != nil {
			verdict = res.verdict.String()
			if res.verdict == near {
				verdict += ": " + res.spread
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", res.Label,
			res.row.unit.format(res.spool), res.row.unit.format(res.other), ratio, res.Goal, verdict)
	}
	return tw.Flush()
}

func (r *report) writeJSON(path string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	err = os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
