package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// peerRow is a line of the table of peers: one metric of all of them.
type peerRow struct {
	label  string
	task   string // that measures it
	metric string
	unit   unit
	more   bool     // more is better
	lost   string   // the metric with the part of the output that was lost
	among  []string // the peers that Spool is compared with; nil means all
	ratio  bound    // goal of Spool's value divided by that of the best peer
	value  bound    // goal of Spool's value
}

// peerRows is the table of speed and memory.
var peerRows = []peerRow{
	{label: "`true`, start to known exit, p50", task: "true", metric: "peers.true.p50", unit: unitTime, ratio: bound{atMost: 1}},
	{label: "`true`, start to known exit, p99", task: "true", metric: "peers.true.p99", unit: unitTime, ratio: bound{atMost: 1}},
	{label: "starts per second, 16 in flight", task: "starts", metric: "peers.starts", unit: unitCount, more: true, ratio: bound{atLeast: 1}},
	{label: "CPU per start, all processes", task: "starts", metric: "peers.starts.cpu", unit: unitTime, ratio: bound{atMost: 1}},
	{label: "100,000 lines to one reader", task: "lines", metric: "peers.lines", unit: unitTime, lost: "peers.lines.lost", ratio: bound{atMost: 0.6}},
	{label: "100,000 lines, server CPU", task: "lines", metric: "peers.lines.cpu", unit: unitTime, lost: "peers.lines.lost", ratio: bound{atMost: 0.5}},
	{label: "100,000 lines, messages, beside envd and sandbox-agent", task: "lines", metric: "peers.lines.messages", unit: unitCount, lost: "peers.lines.lost", among: []string{"envd", "sandbox-agent"}, ratio: bound{atMost: 0.2}},
	{label: "bulk output, start to first byte", task: "bulk", metric: "peers.first", unit: unitTime, ratio: bound{atMost: 1}},
	{label: "bulk output, to one reader", task: "bulk", metric: "peers.bulk", unit: unitRate, more: true, lost: "peers.bulk.lost"},
	{label: "20 readers of one stream, bytes in all", task: "readers.20", metric: "peers.readers.20", unit: unitRate, more: true, lost: "peers.readers.20.lost", ratio: bound{atLeast: 1.2}},
	{label: "100 readers of one stream, bytes in all", task: "readers.100", metric: "peers.readers.100", unit: unitRate, more: true, lost: "peers.readers.100.lost", ratio: bound{atLeast: 1.2}},
	{label: "400 readers of one stream, bytes in all", task: "readers.400", metric: "peers.readers.400", unit: unitRate, more: true, lost: "peers.readers.400.lost", ratio: bound{atLeast: 1.2}},
	{label: "memory, idle", task: "idle", metric: "peers.memory.idle", unit: unitBytes, value: bound{atMost: 20e6}},
	{label: "memory, 10 s after 1,000 runs", task: "starts", metric: "peers.memory.runs", unit: unitBytes, value: bound{atMost: 25e6}},
	{label: "memory, peak with 100 readers", task: "readers.100", metric: "peers.readers.100.memory", unit: unitBytes, lost: "peers.readers.100.lost", value: bound{atMost: 60e6}},
	{label: "memory, peak with 400 readers", task: "readers.400", metric: "peers.readers.400.memory", unit: unitBytes, lost: "peers.readers.400.lost", value: bound{atMost: 60e6}},
	{label: "live commands, starts per second, one at a time", task: "live", metric: "peers.live.starts", unit: unitCount, more: true, ratio: bound{atLeast: 1}},
	{label: "live commands, stops per second, one at a time", task: "live", metric: "peers.live.stops", unit: unitCount, more: true, ratio: bound{atLeast: 1}},
	{label: "100 MiB of output printed by the shell, first byte", task: "logs", metric: "peers.logs.first", unit: unitTime, ratio: bound{atMost: 1.5}},
	{label: "100 MiB of output printed by the shell, all", task: "logs", metric: "peers.logs", unit: unitTime, ratio: bound{atMost: 1}},
	{label: "a reader beside one that stalls, start to end", task: "stalled", metric: "peers.stalled", unit: unitTime},
}

// peerResult is a measured row.
type peerResult struct {
	Label  string                `json:"label"`
	Unit   string                `json:"unit"`
	Values map[string]peerFigure `json:"values"` // by peer
	Best   string                `json:"best,omitempty"`
	Ratio  *float64              `json:"ratio,omitempty"` // of Spool to the best peer
	Goal   string                `json:"goal,omitempty"`
	Met    string                `json:"met,omitempty"`

	row *peerRow
}

// peerFigure is what was measured of one peer.
type peerFigure struct {
	Value float64 `json:"value"` // the median
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Lost  float64 `json:"lost"` // the part of the output that did not arrive
}

// figure returns the samples of a peer, if there are any.
func (s samples) figure(peer string, r *peerRow) (f peerFigure, ok bool) {
	f.Value = s.value(peer, r.metric, median)
	if math.IsNaN(f.Value) {
		return f, false
	}
	f.Low, f.High = s.value(peer, r.metric, lowest), s.value(peer, r.metric, most)
	if r.lost != "" {
		f.Lost = s.value(peer, r.lost, most)
	}
	return f, true
}

// peerResults returns the rows that have samples of Spool.
func (s samples) peerResults(names []string) []peerResult {
	var out []peerResult
	for i := range peerRows {
		r := &peerRows[i]
		res := peerResult{Label: r.label, Unit: r.unit.String(), Values: map[string]peerFigure{}, row: r}
		for _, name := range names {
			if f, ok := s.figure(name, r); ok {
				res.Values[name] = f
			}
		}
		if ours, ok := res.Values[subjectSpool]; ok {
			res.Best = s.best(names, r)
			res.judge(ours)
			out = append(out, res)
		}
	}
	return out
}

// best returns the best peer of those that delivered all of the output, if any.
func (s samples) best(names []string, r *peerRow) (best string) {
	if r.among != nil {
		names = r.among
	}
	var top float64
	for _, name := range names {
		f, ok := s.figure(name, r)
		if !ok || f.Lost > 0 || name == subjectSpool {
			continue
		}
		if best == "" || f.Value < top != r.more {
			best, top = name, f.Value
		}
	}
	return best
}

// judge compares Spool with the best peer.
func (res *peerResult) judge(ours peerFigure) {
	r := res.row
	judged, goal, format := ours.Value, r.value, r.unit.format
	if res.Best != "" {
		ratio := ours.Value / res.Values[res.Best].Value
		res.Ratio = finite(ratio)
		if r.ratio != (bound{}) {
			judged, goal, format = ratio, r.ratio, func(v float64) string { return fmt.Sprintf("%.4g×", v) }
		}
	}
	if goal == (bound{}) || math.IsNaN(judged) {
		return
	}
	res.Goal, res.Met = goal.format(format), goal.verdict(judged).String()
}

// spread formats the lowest and the highest value.
func (f peerFigure) spread(u unit) string { return u.format(f.Low) + " – " + u.format(f.High) }

// cell formats a figure for a table.
func (f peerFigure) cell(u unit) string {
	text := u.format(f.Value)
	if f.Lost > 0 {
		text += " (lost " + percent(f.Lost) + ")"
	}
	return text
}

// percent formats a part. Only nothing at all is 0 %.
func percent(part float64) string {
	switch {
	case part == 0:
		return "0 %"
	case part < 0.001:
		return "< 0.1 %"
	case part > 0.999 && part < 1:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.3g %%", part*100)
}

// scenario is a line of the table of what arrives and what is left.
type scenario struct {
	name, label                    string
	output, survivors, stalls, end bool // what is counted
}

var scenarios = []scenario{
	{name: "cut", label: "reader cut again and again", output: true, end: true},
	{name: "late", label: "reader that comes after the end", output: true, end: true},
	{name: "stalled", label: "reader beside one that stalls", output: true, stalls: true, end: true},
	{name: "slow", label: "the reader that stalled, when it reads again", output: true, end: true},
	{name: "kill", label: "`kill -9` of the server, then a new server", output: true, survivors: true, end: true},
	{name: "setsid", label: "kill of a command with 4 children, 3 with setsid", survivors: true},
}

// cell formats what a scenario counted.
func (h *honesty) cell(sc scenario) string {
	var parts []string
	if sc.output {
		parts = append(parts, "lost "+percent(h.Lost))
		if h.Repeated > 0 {
			parts = append(parts, "repeated "+percent(h.Repeated))
		}
		if h.Torn > 0 {
			parts = append(parts, fmt.Sprintf("%d torn", h.Torn))
		}
	}
	if sc.stalls && h.Stalls > 0 {
		parts = append(parts, "stalled")
	}
	if sc.survivors {
		parts = append(parts, fmt.Sprintf("%d left", h.Survivors))
	}
	if sc.end {
		known := "outcome known"
		if h.Unknown > 0 {
			known = "outcome unknown"
		}
		parts = append(parts, known)
	}
	return strings.Join(parts, ", ")
}

// columns returns the names of the peers that were measured, Spool first.
func (pb *peerBench) columns() []string {
	var names []string
	for _, p := range pb.all {
		if p.absent == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// tasksOf returns the tasks of a peer that have a note, in order.
func (pb *peerBench) tasksOf(peer string) []string {
	var tasks []string
	for k := range pb.notes {
		if k.subject == peer {
			tasks = append(tasks, k.metric)
		}
	}
	slices.Sort(tasks)
	return tasks
}
