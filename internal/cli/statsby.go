package cli

import (
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/ledger"
)

// sumOptions are the flags of spool stats --by.
type sumOptions struct {
	by       string
	csv      bool
	selected psOptions
}

// sumCommand is spool stats --by.
func (a *app) sumCommand(cmd *cobra.Command, args []string, o *sumOptions, watch, asJSON bool) error {
	switch {
	case len(args) > 0:
		return usageErrorf("--by adds up runs that flags select, such as --name %s; it takes no RUN", args[0])
	case watch:
		return usageErrorf("--by and --watch exclude each other")
	}
	by, err := ledger.ParseBy(o.by, time.Local)
	if err != nil {
		return usageErrorf("--by: %v", err)
	}
	list, err := newRunList(a, o.selected)
	if err != nil {
		return err
	}
	return with(a.open, cmd.Context(), func(b spool.Backend) error {
		sum, err := ledger.Sum(cmd.Context(), b, list.filter, list.match, by)
		if err != nil {
			return err
		}
		for _, err := range sum.Unread {
			if isLost(err) {
				return err // the sums lack an unknown number of runs
			}
			fmt.Fprintf(a.stderr, "spool: stats: %v\n", err)
		}
		switch {
		case asJSON:
			for _, g := range append(sum.Groups, sum.Total) {
				if err := a.printJSON(g); err != nil {
					return &writeError{err}
				}
			}
			return nil
		case o.csv:
			return a.sumCSV(sum)
		}
		size, _ := terminalSize(a.stdout)
		_, err = a.stdout.WriteString(sumTable(sum).text(int(size.Cols)))
		return err
	})
}

// sumTable returns the groups and the total as a table.
func sumTable(s *ledger.Stats) *table {
	t := &table{columns: []column{{title: "KEY", least: 10}}}
	for _, title := range []string{"RUNS", "LIVE", "FAILED", "UNMEASURED", "WALL", "CPU", "PEAK", "IN", "OUT", "TURNS", "TOKENS", "COST"} {
		t.columns = append(t.columns, column{title: title, right: true})
	}
	for _, g := range s.Groups {
		key := plain(g.Key)
		if key == "" {
			key = "(none)"
		}
		t.rows = append(t.rows, append([]string{key}, sumCells(&g)...))
	}
	t.rows = append(t.rows, append([]string{"total"}, sumCells(&s.Total)...))
	return t
}

func sumCells(g *ledger.Group) []string {
	cpu, peak, tokens, cost := "-", "-", "-", "-"
	if p := g.Processes; p != nil {
		cpu = formatCPU(time.Duration(p.UserUs+p.SystemUs) * time.Microsecond)
		if p.PeakMemory > 0 {
			peak = formatBytes(p.PeakMemory)
		}
	}
	if u := g.Tokens; u != nil {
		tokens = strconv.FormatInt(u.Input+u.Output, 10)
		if u.CostUSD > 0 {
			cost = fmt.Sprintf("$%.2f", u.CostUSD)
		}
	}
	return []string{
		strconv.Itoa(g.Runs), strconv.Itoa(g.Live), strconv.Itoa(g.Failed), strconv.Itoa(g.Unmeasured),
		formatCPU(time.Duration(g.WallMs) * time.Millisecond), cpu, peak,
		formatBytes(g.Input), formatBytes(g.Output), strconv.Itoa(g.Turns), tokens, cost,
	}
}

// sumCSV prints the groups as CSV. What is not known is empty.
func (a *app) sumCSV(s *ledger.Stats) error {
	w := csv.NewWriter(a.stdout)
	_ = w.Write([]string{"key", "runs", "live", "failed", "unknown", "unmeasured", "wall_ms", "user_us", "system_us", "peak_memory_bytes",
		"input_bytes", "output_bytes", "turns", "input_tokens", "output_tokens", "cost_usd"}) // Error has it
	for _, g := range s.Groups {
		row := []string{g.Key}
		for _, n := range []int64{int64(g.Runs), int64(g.Live), int64(g.Failed), int64(g.Unknown), int64(g.Unmeasured), g.WallMs} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		if p := g.Processes; p != nil {
			row = append(row, strconv.FormatInt(p.UserUs, 10), strconv.FormatInt(p.SystemUs, 10), formatNumber(p.PeakMemory))
		} else {
			row = append(row, "", "", "")
		}
		row = append(row, strconv.FormatInt(g.Input, 10), strconv.FormatInt(g.Output, 10), strconv.Itoa(g.Turns))
		tokens := []string{"", "", ""}
		if u := g.Tokens; u != nil {
			tokens = []string{strconv.FormatInt(u.Input, 10), strconv.FormatInt(u.Output, 10), ""}
			if u.CostUSD > 0 {
				tokens[2] = strconv.FormatFloat(u.CostUSD, 'f', -1, 64)
			}
		}
		_ = w.Write(append(row, tokens...))
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return &writeError{err}
	}
	return nil
}
