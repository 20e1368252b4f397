package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

func (a *app) waitCommand() *cobra.Command {
	var asJSON bool
	var timeout span
	cmd := &cobra.Command{
		Use:   "wait [flags] RUN…",
		Short: "Wait until runs have finished",
		Long: `Wait waits until runs have finished and exits with their exit code: the first
one that is not 0, in the order of the arguments. A kernel, sandbox or agent that
ended well counts with its last turn, as "spool py", "spool box" and "spool agent"
exit. With --json it prints one JSON object per line, one line per run.

Exit codes: the exit code of the run; 128+N if signal N ended it; 124 if the run
timed out, or --timeout of wait passed before, which leaves the runs alone; 125 if
its outcome is unknown or spool failed.`,
		Example: `  spool wait build
  spool wait --timeout 10m build
  spool wait --json build test lint`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("timeout") {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout))
				defer cancel()
			}
			err := with(a.open, ctx, func(b spool.Backend) error { return a.wait(ctx, b, args, asJSON) })
			if err != nil && isLate(ctx) {
				return &exitError{exitTimeUp, &hintedError{
					fmt.Errorf("timed out after %s", time.Duration(timeout)), `the runs go on; "spool ps --live" lists them`,
				}}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	cmd.Flags().Var(&timeout, "timeout", "stop waiting after this `time`, such as 30s or 10m")
	return cmd
}

// isLate reports whether the deadline of ctx has passed. A connection may meet it
// a moment before ctx is done.
func isLate(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func (a *app) wait(ctx context.Context, b spool.Backend, names []string, asJSON bool) error {
	runs := make([]*spool.Run, len(names))
	for i, name := range names {
		var err error
		if runs[i], err = spool.Find(ctx, b, name); err != nil {
			return err
		}
	}
	var first error
	for _, run := range runs {
		outcome, err := run.Wait(ctx)
		if err != nil {
			return err
		}
		info, err := run.Info(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			if err := a.printJSON(info); err != nil {
				return err
			}
		}
		if outcome.Kind == spool.Unknown && info.Outcome != nil {
			outcome = *info.Outcome // a run that was never started has no log that says so
		}
		code := outcome.ExitCode()
		if outcome.Kind != spool.Exited {
			fmt.Fprintf(a.stderr, "spool: wait: run %s: %s\n", run.ID(), outcome)
		} else if code == exitTimeUp && outcome.Reason != "" {
			fmt.Fprintf(a.stderr, "spool: wait: run %s: %s\n", run.ID(), outcome.Reason)
		}
		if code == 0 && info.TurnOutcome != "" && info.TurnOutcome != spool.TurnOK {
			if code, err = lastTurnCode(ctx, run, info); err != nil {
				return err
			}
			if code != 0 && !asJSON {
				fmt.Fprintf(a.stderr, "spool: wait: run %s: the last turn ended with %q\n", run.ID(), info.TurnOutcome)
			}
		}
		if first == nil {
			first = exit(code)
		}
	}
	return first
}

// lastTurnCode returns the exit code that the verb of a run gives for its last
// turn, which did not end well.
func lastTurnCode(ctx context.Context, run *spool.Run, info spool.Info) (int, error) {
	if info.Engine != python.EngineKernel && info.Engine != python.EngineSandbox {
		if code, ok := turnExit[info.TurnOutcome]; ok {
			return code, nil
		}
		return exitFailure, nil
	}
	// The exit code of a script is in the events of the turn, near the end of
	// the log.
	for back := spool.Seq(64); ; back *= 16 {
		after := spool.Seq(0)
		if info.Last > back {
			after = info.Last - back
		}
		end, complete, err := lastTurnEnd(ctx, run, after, info.Last)
		if err != nil || complete || after == 0 {
			return end.exitCode(), err
		}
	}
}

// lastTurnEnd reads the end of the last turn from a part of the log. It reports
// whether that part has the whole turn.
func lastTurnEnd(ctx context.Context, run *spool.Run, after, last spool.Seq) (end turnEnd, complete bool, err error) {
	var turn spool.Seq // the turn that was done last
	var exits = make(map[spool.Seq]turnEnd)
	for cursor := after; cursor < last; {
		page, err := run.Read(ctx, spool.Query{After: cursor})
		if err != nil {
			return end, false, err
		}
		if len(page.Events) == 0 {
			break
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Turn == 0 {
				continue
			}
			t := exits[e.Turn]
			t.note(e)
			exits[e.Turn] = t
			if e.Kind == spool.KindDone {
				turn = e.Turn
			}
		}
		cursor = page.Next
	}
	return exits[turn], turn > after, nil
}
