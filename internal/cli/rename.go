package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) renameCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "rename [flags] RUN NAME",
		Short:             "Give a run another name",
		Long:              `Rename gives a run, live or finished, another name. It refuses the name of another live run.`,
		Example:           "  spool rename 0f3k nightly",
		Args:              usageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.rename(cmd.Context(), b, args[0], args[1], asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the description of the run as JSON")
	return cmd
}

func (a *app) rename(ctx context.Context, b spool.Backend, name, to string, asJSON bool) error {
	renamer, ok := b.(spool.Renamer)
	if !ok {
		return fmt.Errorf("rename runs: %w by this backend", spool.ErrUnsupported)
	}
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return err
	}
	for info, err := range b.List(ctx, spool.Filter{Name: to, Live: true, Limit: 2}) {
		if err == nil && to != "" && info.ID != run.ID() {
			return &hintedError{fmt.Errorf("the live run %s has the name %q", info.ID, to), "choose another name, or stop that run first"}
		}
	}
	info, err := renamer.Rename(ctx, run.ID(), to)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(info)
	}
	return nil
}
