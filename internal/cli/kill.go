package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// killOptions are the flags of spool kill.
type killOptions struct {
	signal string
	grace  time.Duration
	now    bool
}

func (a *app) killCommand() *cobra.Command {
	var o killOptions
	cmd := &cobra.Command{
		Use:   "kill [flags] RUN…",
		Short: "Stop runs",
		Long: `Kill sends SIGTERM to runs, waits for their grace period, sends SIGKILL to every
process that is left, including all processes they started, and prints how each
run ended. --now sends SIGKILL at once. A run that has already exited is not an
error.

--signal only sends that signal and does not wait.`,
		Example: `  spool kill web
  spool kill --grace 30s web db
  spool kill --now 0f3k
  spool kill --signal HUP web`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeLiveRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.kill(cmd.Context(), b, args, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.signal, "signal", "s", "", "send only this `signal`, such as HUP, and do not wait")
	flags.DurationVar(&o.grace, "grace", 0, "`time` between SIGTERM and SIGKILL (default: the run's own)")
	flags.BoolVar(&o.now, "now", false, "send SIGKILL at once")
	cmd.MarkFlagsMutuallyExclusive("signal", "grace", "now")
	return cmd
}

func (a *app) kill(ctx context.Context, b spool.Backend, names []string, o killOptions) error {
	if o.grace < 0 {
		return usageErrorf("--grace must not be negative")
	}
	// Stop all runs before waiting for the first.
	var errs []error
	var stopping []*spool.Run
	for _, name := range names {
		run, err := a.killOne(ctx, b, name, o)
		if err != nil {
			errs = append(errs, err)
		} else if run != nil {
			stopping = append(stopping, run)
		}
	}
	for _, run := range stopping {
		outcome, err := run.Wait(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(a.stdout, "%s %s\n", run.ID(), outcome)
	}
	return errors.Join(errs...)
}

// killOne signals, stops or kills one run. It returns the run if the caller has
// to wait for its end.
func (a *app) killOne(ctx context.Context, b spool.Backend, name string, o killOptions) (*spool.Run, error) {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return nil, err
	}
	info, err := run.Info(ctx)
	if err != nil {
		return nil, err
	}
	if o.signal != "" {
		if err := run.Signal(ctx, o.signal); err != nil {
			return nil, err
		}
		fmt.Fprintf(a.stdout, "sent %s to %s\n", strings.ToUpper(o.signal), info.ID)
		return nil, nil
	}
	if info.State == spool.StateClosed {
		fmt.Fprintf(a.stdout, "%s already ended: %s\n", info.ID, stateText(info))
		return nil, nil
	}
	if o.now {
		err = run.Kill(ctx)
	} else {
		err = run.Control(ctx, spool.Control{Op: spool.ControlStop, Grace: o.grace})
	}
	if err != nil {
		return nil, err
	}
	return run, nil
}
