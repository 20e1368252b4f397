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
	c := spool.Control{Op: spool.ControlStop, Grace: o.grace}
	switch {
	case o.grace < 0:
		return usageErrorf("grace must not be negative")
	case o.signal != "":
		c = spool.Control{Op: spool.ControlSignal, Signal: o.signal}
	case o.now:
		c = spool.Control{Op: spool.ControlKill}
	}
	// All are asked before the first is waited for.
	var errs []error
	var asked []*spool.Run
	for _, name := range names {
		run, err := a.killOne(ctx, b, name, c)
		if err != nil {
			errs = append(errs, err)
		} else if run != nil {
			asked = append(asked, run)
		}
	}
	for _, run := range asked {
		outcome, err := run.Wait(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(a.stdout, "%s %s\n", run.ID(), outcome)
	}
	return errors.Join(errs...)
}

// killOne asks one run and returns it if it is to be waited for.
func (a *app) killOne(ctx context.Context, b spool.Backend, name string, c spool.Control) (*spool.Run, error) {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return nil, err
	}
	info, err := run.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.State == spool.StateClosed && c.Op != spool.ControlSignal {
		fmt.Fprintf(a.stdout, "%s already ended: %s\n", info.ID, stateText(info))
		return nil, nil
	}
	if err := run.Control(ctx, c); err != nil {
		return nil, err
	}
	if c.Op == spool.ControlSignal {
		fmt.Fprintf(a.stdout, "sent %[2]s to %[1]s\n", info.ID, strings.ToUpper(c.Signal))
		return nil, nil
	}
	return run, nil
}
