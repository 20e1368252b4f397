package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) waitCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "wait [flags] RUN…",
		Short: "Wait until runs have finished",
		Long: `Wait waits until runs have finished and exits with their exit code: the first
one that is not 0, in the order of the arguments. With --json it prints one JSON
object per line, one line per run.

Exit codes: the exit code of the run; 128+N if signal N ended it; 125 if its
outcome is unknown or spool failed.`,
		Example: `  spool wait build
  spool wait --json build test lint`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.wait(cmd.Context(), b, args, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) wait(ctx context.Context, b spool.Backend, names []string, asJSON bool) error {
	runs := make([]*spool.Run, len(names))
	for i, name := range names {
		var err error
		if runs[i], err = spool.Find(ctx, b, name); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	var first error
	for _, run := range runs {
		outcome, err := run.Wait(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			info, err := run.Info(ctx)
			if err != nil {
				return err
			}
			if err := enc.Encode(info); err != nil {
				return err
			}
		}
		if outcome.Kind != spool.Exited {
			fmt.Fprintf(a.stderr, "spool: wait: run %s: %s\n", run.ID(), outcome)
		}
		if first == nil {
			first = exit(outcome.ExitCode())
		}
	}
	return first
}
