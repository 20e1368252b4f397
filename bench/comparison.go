package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// fillPeers puts the results of the peers into the report.
func (b *bench) fillPeers(r *report) {
	if b.field == nil {
		return
	}
	r.field = b.field
	r.Peers = b.peerResults(b.field.columns())
	r.Honesty, r.Versions, r.Absent = map[string]map[string]*honesty{}, map[string]string{}, map[string]string{}
	for k, h := range b.field.losses {
		if r.Honesty[k.metric] == nil {
			r.Honesty[k.metric] = map[string]*honesty{}
		}
		r.Honesty[k.metric][k.subject] = h
	}
	for _, p := range b.field.all {
		if p.absent != "" {
			r.Absent[p.Name] = p.absent
			continue
		}
		r.Versions[p.Name] = p.Version
	}
}

// peerTables returns the two tables, of speed and of what arrives, by rows and
// columns. The first row names the columns.
func (r *report) peerTables() (speed, arrives [][]string) {
	names := r.field.columns()
	speed = [][]string{append(append([]string{"speed and memory"}, names...), "to the best peer", "goal", "")}
	for i := range r.Peers {
		res := &r.Peers[i]
		line := []string{res.Label}
		for _, name := range names {
			if f, ok := res.Values[name]; ok {
				line = append(line, f.cell(res.row.unit))
			} else {
				line = append(line, "–")
			}
		}
		ratio, verdict := "", res.Met
		if res.Ratio != nil {
			ratio = digits(*res.Ratio) + "×"
		}
		if verdict == near.String() {
			verdict += ": " + res.Values[subjectSpool].spread(res.row.unit)
		}
		speed = append(speed, append(line, ratio, res.Goal, verdict))
	}
	arrives = [][]string{append([]string{"what arrives, what is left"}, names...)}
	for _, sc := range scenarios {
		line := []string{sc.label}
		for _, name := range names {
			if h := r.Honesty[sc.name][name]; h != nil {
				line = append(line, h.cell(sc))
			} else {
				line = append(line, "–")
			}
		}
		arrives = append(arrives, line)
	}
	return speed, arrives
}

// writePeers prints the tables of the peers.
func (r *report) writePeers(w io.Writer) error {
	if r.field == nil {
		return nil
	}
	speed, arrives := r.peerTables()
	for _, table := range [][][]string{speed, arrives} {
		tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		fmt.Fprintln(tw)
		for _, line := range table {
			fmt.Fprintln(tw, strings.Join(line, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s", r.peerNotes("- "))
	return err
}

// peerNotes lists the peers that were not measured and the figures that are
// missing, with the reasons.
func (r *report) peerNotes(bullet string) string {
	var notes []string
	for _, p := range r.field.all {
		if p.absent != "" {
			notes = append(notes, fmt.Sprintf("%s%s %s (%s) was not measured: %s\n", bullet, p.Name, p.Version, p.Source, p.absent))
		}
	}
	for _, p := range r.field.all {
		for _, task := range r.field.tasksOf(p.Name) {
			notes = append(notes, fmt.Sprintf("%s%s, %s: %s\n", bullet, p.Name, task, r.field.notes[sampleKey{p.Name, task}]))
		}
	}
	return strings.Join(notes, "")
}

// writeComparison writes the page about the peers.
func (r *report) writeComparison(path string) error {
	if r.field == nil {
		return fmt.Errorf("write %s: no peers were measured", path)
	}
	var b bytes.Buffer
	extent := "full"
	if r.Quick {
		extent = "quick: with less work than the rows say, so the numbers are less exact"
	}
	fmt.Fprintf(&b, `# Spool beside other servers

`+"`make comparison`"+` writes this page. Every figure is from one run of it; none is typed.

All servers did the same work on the same machine, in turns: each task went through
all of them before the next began, and all tasks were repeated in rounds, in another
order each time. A figure is the median of the rounds. The best peer of a row is the best
of those that delivered all of the output. What arrives and what is left is the worst of
the rounds. A goal that is missed by less than %.0f %% counts as met, and the spread is
shown. Memory is resident memory of all processes of a server, with pages that they share
counted once.

- date: %s
- machine: %d CPUs, Linux %s, %s
- rounds: %d, %s
- load of the last minute: %.1f before the run, %.1f at its end, with the load that
  the run itself makes
- processor time that the hypervisor gave to others during the run: %.1f %%

`, 100*tolerance, r.Time.Format("2006-01-02 15:04 MST"), r.CPUs, r.Kernel, r.Go, r.Rounds, extent, r.Load, r.LoadAfter, 100*r.Stolen)
	speed, arrives := r.peerTables()
	writeMarkdown(&b, speed)
	fmt.Fprintln(&b)
	writeMarkdown(&b, arrives)
	fmt.Fprintf(&b, "\n## What was measured\n\n")
	measured := [][]string{{"server", "version", "from", "started with", "driven by"}}
	for _, p := range r.field.all {
		if p.absent == "" {
			measured = append(measured, []string{p.Name, cmp.Or(p.Version, "this one"), p.Source, p.Command, p.Drive})
		}
	}
	writeMarkdown(&b, measured)
	if notes := r.peerNotes("- "); notes != "" {
		fmt.Fprintf(&b, "\n## What was not measured\n\n%s", notes)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// writeMarkdown writes a table whose first row names the columns.
func writeMarkdown(b *bytes.Buffer, table [][]string) {
	for i, line := range table {
		cells := slices.Clone(line)
		for j := range cells {
			cells[j] = strings.ReplaceAll(cells[j], "|", "\\|")
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(cells)))
		}
	}
}
