package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// pruneOptions are the flags of spool prune.
type pruneOptions struct {
	older  span
	keep   int
	all    bool
	filter []string
	dry    bool
	json   bool
	// retention deletes what the backend would delete by itself.
	retention bool
}

func (a *app) pruneCommand() *cobra.Command {
	o := pruneOptions{keep: -1}
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Delete old finished runs",
		Long: `Prune deletes finished runs, and the images and other large values that no other
run uses. --older deletes those that ended longer ago than a time, --keep all but
the newest ones; with both, a run must be old and not among the newest. --all
deletes every finished run. Runs that have not finished always stay, and so do those
with the label keep=forever, which "spool rm" deletes. What the deleted runs changed in
their workspaces is deleted, too. --dry-run says for each run why it would go, and
mentions changes that were neither applied nor discarded.

Without any of them prune deletes what Spool would soon delete by itself. A finished run
is deleted once it is older than retain-age (7 days), or than retain-label says for a
label it has; then those that ended first go until there are at most retain-runs of them
and their logs take at most retain-bytes (16G); a run with the label keep=forever always
stays. These are keys of the configuration file, and flags of "spool serve" and "spool exec-server".`,
		Example: `  spool prune --dry-run
  spool prune --older 7d
  spool prune --keep 100 --dry-run
  spool prune --all --filter label=ci=1`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			older, keep := cmd.Flags().Changed("older"), cmd.Flags().Changed("keep")
			o.retention = !older && !keep && !o.all
			if o.retention && len(o.filter) > 0 {
				return usageErrorf("say which of these runs: --older 7d, --keep 100, or --all")
			}
			if keep && o.keep < 0 {
				return usageErrorf("--keep must not be negative")
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.prune(cmd.Context(), b, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&o.older, "older", "delete runs that ended longer than this `time` ago, such as 12h or 7d")
	flags.IntVar(&o.keep, "keep", -1, "keep this `number` of the newest finished runs")
	flags.Lookup("keep").DefValue = "0" // which the help does not print
	flags.BoolVar(&o.all, "all", false, "delete every finished run")
	flags.StringArrayVar(&o.filter, "filter", nil, "only runs that match these `key=value` pairs; see spool ps")
	flags.BoolVarP(&o.dry, "dry-run", "n", false, "only print what would be deleted")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	cmd.MarkFlagsMutuallyExclusive("all", "older")
	cmd.MarkFlagsMutuallyExclusive("all", "keep")
	a.completeFilter(cmd)
	return cmd
}

func (a *app) prune(ctx context.Context, b spool.Backend, o pruneOptions) error {
	due := a.dueBy
	if o.retention {
		due = a.dueByRetention
	}
	runs, err := due(ctx, b, o)
	if err != nil {
		return err
	}
	return a.remove(ctx, b, runs, o.dry, o.json)
}

// dueByRetention returns the runs that the backend would delete by itself.
func (a *app) dueByRetention(ctx context.Context, b spool.Backend, _ pruneOptions) (runs []spool.Due, err error) {
	retainer, ok := b.(spool.Retainer)
	if !ok {
		return nil, usageErrorf("a server does not say what it deletes by itself; say which runs: --older 7d, --keep 100, or --all")
	}
	for due, err := range retainer.Due(ctx) {
		if err != nil {
			return nil, err
		}
		runs = append(runs, due)
	}
	return runs, nil
}

// dueBy returns the runs that the flags select, the newest first.
func (a *app) dueBy(ctx context.Context, b spool.Backend, o pruneOptions) ([]spool.Due, error) {
	f, match, err := parseFilters(o.filter)
	if err != nil {
		return nil, err
	}
	if f.State == "" {
		f.State = spool.StateClosed
	}
	now := time.Now()
	before := now.Add(-time.Duration(o.older))
	if o.older > 0 && o.keep < 0 && f.Before.IsZero() {
		f.Before = before // a run that ended before was created before
	}
	var finished []spool.Info
	for info, err := range b.List(ctx, f) {
		if err != nil {
			if ctx.Err() != nil || isLost(err) {
				return nil, err
			}
			fmt.Fprintf(a.stderr, "spool: prune: %v\n", err)
			continue
		}
		if info.State == spool.StateClosed && (match == nil || match(&info)) && info.Labels["keep"] != forever {
			finished = append(finished, info)
		}
	}
	slices.SortStableFunc(finished, func(a, b spool.Info) int { return b.Ended.Compare(a.Ended) })
	if o.keep >= 0 {
		finished = finished[min(o.keep, len(finished)):]
	}
	var runs []spool.Due
	for _, info := range finished {
		if o.older > 0 && !info.Ended.Before(before) {
			continue
		}
		var why []string
		if o.older > 0 {
			why = append(why, fmt.Sprintf("it ended %s ago", formatAge(now.Sub(info.Ended))))
		}
		if o.keep >= 0 {
			why = append(why, fmt.Sprintf("it is not among the newest %d", o.keep))
		}
		if o.all {
			why = append(why, "it has finished")
		}
		runs = append(runs, spool.Due{Run: info.ID, Why: strings.Join(why, ", and ")})
	}
	return runs, nil
}
