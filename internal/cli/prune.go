package cli

import (
	"context"
	"fmt"
	"slices"
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
}

func (a *app) pruneCommand() *cobra.Command {
	o := pruneOptions{keep: -1}
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Delete old finished runs",
		Long: `Prune deletes finished runs, and the images and other large values that no other
run uses. --older deletes those that ended longer ago than a time, --keep all but
the newest ones; with both, a run must be old and not among the newest. --all
deletes every finished run. Runs that have not finished always stay. What the deleted
runs changed in their workspaces is deleted, too; --dry-run mentions changes that were
neither applied nor discarded.

Without prune, runs are deleted 7 days after their end, and earlier if all logs
together exceed 16G; "spool exec-server" has flags for both.`,
		Example: `  spool prune --older 7d
  spool prune --keep 100 --dry-run
  spool prune --all --filter label=ci=1`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			older, keep := cmd.Flags().Changed("older"), cmd.Flags().Changed("keep")
			if !older && !keep && !o.all {
				return usageErrorf("say which runs: --older 7d, --keep 100, or --all")
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
	flags.Lookup("keep").DefValue = ""
	flags.BoolVar(&o.all, "all", false, "delete every finished run")
	flags.StringArrayVar(&o.filter, "filter", nil, "only runs that match; see spool ps")
	flags.BoolVarP(&o.dry, "dry-run", "n", false, "only print what would be deleted")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	cmd.MarkFlagsMutuallyExclusive("all", "older")
	cmd.MarkFlagsMutuallyExclusive("all", "keep")
	a.completeFilter(cmd)
	return cmd
}

func (a *app) prune(ctx context.Context, b spool.Backend, o pruneOptions) error {
	f, match, err := parseFilters(o.filter)
	if err != nil {
		return err
	}
	if f.State == "" {
		f.State = spool.StateClosed
	}
	var finished []spool.Info
	for info, err := range b.List(ctx, f) {
		if err != nil {
			if ctx.Err() != nil || isLost(err) {
				return err
			}
			fmt.Fprintf(a.stderr, "spool: prune: %v\n", err)
			continue
		}
		if info.State == spool.StateClosed && match(&info) {
			finished = append(finished, info)
		}
	}
	slices.SortStableFunc(finished, func(a, b spool.Info) int { return b.Ended.Compare(a.Ended) })
	if o.keep >= 0 {
		finished = finished[min(o.keep, len(finished)):]
	}
	var ids []spool.RunID
	before := time.Now().Add(-time.Duration(o.older))
	for _, info := range finished {
		if o.older == 0 || info.Ended.Before(before) {
			ids = append(ids, info.ID)
		}
	}
	return a.remove(ctx, b, ids, o.dry, o.json)
}
