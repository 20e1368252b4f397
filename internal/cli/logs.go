package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// logsOptions are the flags of spool logs.
type logsOptions struct {
	follow         bool
	after          uint64
	json           bool
	stdout, stderr bool
	timestamps     bool
}

func (a *app) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs [flags] RUN",
		Short: "Print the output of a run",
		Long: `Logs prints the output of a run: its stdout to stdout, its stderr to stderr, and
the output of its terminal to stdout. It prints what the log holds now; with
--follow it continues until the run has finished. --after starts at any
position: it takes the "seq" of the last event you saw, as --json prints it.`,
		Example: `  spool logs web
  spool logs -f web
  spool logs --json --after 120 0f3k
  spool logs --stderr --timestamps build`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.logs(cmd.Context(), b, args[0], o)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "continue until the run has finished")
	flags.Uint64Var(&o.after, "after", 0, "start after the event with this `seq`")
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.BoolVar(&o.stdout, "stdout", false, "print only stdout")
	flags.BoolVar(&o.stderr, "stderr", false, "print only stderr")
	flags.BoolVar(&o.timestamps, "timestamps", false, "print the time before every line")
	cmd.MarkFlagsMutuallyExclusive("stdout", "stderr", "json")
	cmd.MarkFlagsMutuallyExclusive("timestamps", "json")
	return cmd
}

func (a *app) logs(ctx context.Context, b spool.Backend, name string, o logsOptions) error {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return err
	}
	p := &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), blobs: run, json: o.json, timestamps: o.timestamps}
	switch {
	case o.stdout:
		p.only = spool.Stdout
	case o.stderr:
		p.only = spool.Stderr
	}
	after := spool.Seq(o.after)
	if !o.follow {
		return printCurrent(ctx, run, p, after)
	}
	for e, err := range run.Stream(ctx, after) {
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return errors.New(o.Reason)
		}
		if err := p.print(ctx, &e); err != nil {
			return &writeError{err}
		}
	}
	return nil
}

// printCurrent prints the events that the log holds now. It ignores events that
// arrive meanwhile: a live run may write faster than printCurrent prints.
func printCurrent(ctx context.Context, run *spool.Run, p *printer, after spool.Seq) error {
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	for after < info.Last {
		page, err := run.Read(ctx, spool.Query{After: after})
		if err != nil {
			return err
		}
		if page.Failure != "" {
			return errors.New(page.Failure)
		}
		if len(page.Events) == 0 {
			return nil
		}
		for i := range page.Events {
			if err := p.print(ctx, &page.Events[i]); err != nil {
				return &writeError{err}
			}
		}
		after = page.Next
	}
	return nil
}
