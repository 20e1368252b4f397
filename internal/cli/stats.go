package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/ledger"
	"github.com/spool-run/spool/internal/pause"
)

// statsSample is the time between the two measurements from which a single
// output of stats computes the share of a processor.
const statsSample = 100 * time.Millisecond

func (a *app) statsCommand() *cobra.Command {
	var watch, asJSON bool
	var o sumOptions
	cmd := &cobra.Command{
		Use:     "stats [flags] [RUN…]",
		Aliases: []string{"top"},
		Short:   "Show what live runs use, or with --by what runs used",
		Long: `Without --by, stats shows what the processes of live runs use, of all or of the named ones, and
the total: CPU is the share of one processor at this moment and TIME what they
used so far, MEMORY what they hold now, READ and WRITTEN what they moved from and
to disks, LOGGED the output in the log. TIME and the disk columns count live
processes, and TIME also their children that ended.

With --watch it shows that every second, in place, until Ctrl-C; so does "spool top"
on a terminal. With --json it prints one JSON object per run and line, and with
--watch again every second.

With --by it adds up what runs used, live and finished, from their ledgers: one line
for each engine, day (of the start), name, subject, outcome or value of a label, and
the total. RUNS counts runs, FAILED those that ended and not well, and UNMEASURED those
that ended without a ledger: what they used is not in the sums. WALL is the sum of
their times, CPU their processor time, PEAK the most memory that one process held, IN
and OUT their input and output; a - means that nothing is known. The flags of "spool
ps" select runs. With --json it prints one JSON object per group and line, the last
with the key "total"; with --csv the same as CSV, without the total.`,
		Example: `  spool stats
  spool top
  spool stats --json web
  spool stats --by engine
  spool stats --by day --since 7d --engine agent
  spool stats --by label=team --csv`,
		ValidArgsFunction: a.completeLiveRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.by != "" {
				return a.sumCommand(cmd, args, &o, watch, asJSON)
			}
			for _, name := range append([]string{"csv"}, selectNames...) {
				if cmd.Flags().Changed(name) {
					return usageErrorf("--%s needs --by: without it stats shows live runs", name)
				}
			}
			if cmd.CalledAs() == "top" && !cmd.Flags().Changed("watch") && !asJSON {
				watch = isTerminal(a.stdout)
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.stats(cmd.Context(), b, args, watch, asJSON)
			})
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second, in place")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line, one line per run or group")
	cmd.Flags().StringVar(&o.by, "by", "", "add up what runs used by this `key`: label=KEY, engine, day, name, subject or outcome")
	cmd.Flags().BoolVar(&o.csv, "csv", false, "with --by, print CSV")
	a.selectFlags(cmd, &o.selected)
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
	completeWords(cmd, "by", append(slices.Clone(ledger.Keys[1:]), "label="))
	return cmd
}

// runMeter measures runs, again and again.
type runMeter struct {
	meter  spool.Meter
	ids    []spool.RunID // none means all live runs
	before map[spool.RunID]spool.Resources
}

func (a *app) stats(ctx context.Context, b spool.Backend, names []string, watch, asJSON bool) error {
	meter, ok := b.(spool.Meter)
	if !ok {
		return fmt.Errorf("measure runs: %w by this backend", spool.ErrUnsupported)
	}
	m := &runMeter{meter: meter}
	for _, name := range names {
		_, info, err := findInfo(ctx, b, name)
		if err != nil {
			return err
		}
		if info.State == spool.StateClosed {
			return &hintedError{fmt.Errorf("run %s has finished and uses nothing", name), fmt.Sprintf(`"spool inspect %s" shows what it was`, name)}
		}
		m.ids = append(m.ids, info.ID)
	}
	if asJSON {
		return a.statsJSON(ctx, m, watch)
	}
	titles := make(map[spool.RunID]spool.Info)
	if watch {
		return a.refresh(ctx, nil, func(ctx context.Context, cols int) (string, error) { return m.text(ctx, b, titles, cols) })
	}
	// Twice, because the share of a processor is a difference.
	if _, _, err := m.measure(ctx); err != nil {
		return err
	}
	if err := pause.For(ctx, statsSample); err != nil {
		return err
	}
	size, _ := terminalSize(a.stdout)
	text, err := m.text(ctx, b, titles, int(size.Cols))
	if err != nil {
		return err
	}
	_, err = a.stdout.WriteString(text)
	return err
}

func (a *app) statsJSON(ctx context.Context, m *runMeter, watch bool) error {
	for {
		used, _, err := m.measure(ctx)
		if err != nil {
			return err
		}
		for _, u := range used {
			if err := a.printJSON(u); err != nil {
				return &writeError{err}
			}
		}
		if !watch {
			return nil
		}
		if err := pause.For(ctx, watchEvery); err != nil {
			return err
		}
	}
}

// measure returns what the runs use, and the shares of a processor since the
// last call; runs that use most of it come first.
func (m *runMeter) measure(ctx context.Context) ([]spool.Resources, map[spool.RunID]float64, error) {
	used, err := m.meter.Measure(ctx, m.ids)
	if errors.Is(err, spool.ErrNotFound) && m.before != nil {
		used, err = nil, nil // removed meanwhile
	}
	if err != nil {
		return nil, nil, err
	}
	shares := make(map[spool.RunID]float64)
	now := make(map[spool.RunID]spool.Resources, len(used))
	for _, u := range used {
		now[u.Run] = u
		before, ok := m.before[u.Run]
		if passed := u.Time.Sub(before.Time).Milliseconds(); ok && passed > 0 {
			// Less than before means that a child ended without being reaped by
			// one of the processes.
			shares[u.Run] = max(0, float64(u.CPUMs-before.CPUMs)/float64(passed))
		}
	}
	m.before = now
	slices.SortStableFunc(used, func(a, b spool.Resources) int {
		return cmp.Or(cmp.Compare(shares[b.Run], shares[a.Run]), cmp.Compare(b.CPUMs, a.CPUMs), cmp.Compare(a.Run, b.Run))
	})
	return used, shares, nil
}

// text returns the table. Infos keeps the descriptions of runs between calls.
func (m *runMeter) text(ctx context.Context, b spool.Backend, infos map[spool.RunID]spool.Info, cols int) (string, error) {
	used, shares, err := m.measure(ctx)
	if err != nil {
		return "", err
	}
	t := table{columns: []column{
		{title: "ID"}, {title: "NAME", least: 10}, {title: "CPU", right: true}, {title: "TIME", right: true}, {title: "MEMORY", right: true},
		{title: "READ", right: true}, {title: "WRITTEN", right: true}, {title: "LOGGED", right: true}, {title: "PROCS", right: true}, {title: "COMMAND", least: 8},
	}}
	var total spool.Resources
	var share float64
	for _, u := range used {
		info, ok := infos[u.Run]
		if !ok {
			if info, err = b.Stat(ctx, u.Run); err != nil {
				continue // it was removed meanwhile
			}
			infos[u.Run] = info
		}
		t.rows = append(t.rows, append(append([]string{shorten(string(u.Run)), plain(info.Name)}, usageCells(u, shares[u.Run])...), plain(commandColumn(info))))
		total.CPUMs += u.CPUMs
		total.Memory += u.Memory
		total.Read += u.Read
		total.Written += u.Written
		total.Logged += u.Logged
		total.Processes += u.Processes
		share += shares[u.Run]
	}
	t.rows = append(t.rows, append(append([]string{"total", count(len(used), "run", "runs")}, usageCells(total, share)...), ""))
	return t.text(cols), nil
}

func usageCells(u spool.Resources, share float64) []string {
	return []string{
		fmt.Sprintf("%.0f%%", 100*share), formatCPU(time.Duration(u.CPUMs) * time.Millisecond), formatBytes(u.Memory),
		formatBytes(u.Read), formatBytes(u.Written), formatBytes(u.Logged), strconv.Itoa(u.Processes),
	}
}

// formatCPU formats the time on a processor: 0.35s, 12s, 3m05s, 2h10m.
func formatCPU(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}
