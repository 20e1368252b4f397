package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lazyregexp"
)

// killOptions are the flags of spool kill.
type killOptions struct {
	signal string
	grace  time.Duration
	now    bool
	all    bool
	json   bool
}

func (a *app) killCommand() *cobra.Command {
	var o killOptions
	cmd := &cobra.Command{
		Use:     "kill [flags] RUN…",
		Aliases: []string{"stop"},
		Short:   "Stop runs",
		Long: `Kill sends SIGTERM to runs, waits for their grace period, sends SIGKILL to every
process that is left, including all processes they started, and prints how each
run ended. --now sends SIGKILL at once, as -9 does. A run that has already exited
is not an error. --all stops every live run.

--signal only sends that signal and does not wait; so do forms such as -HUP and
-1.`,
		Example: `  spool kill web
  spool kill --grace 30s web db
  spool kill -9 0f3k
  spool kill --signal HUP web
  spool kill --all`,
		ValidArgsFunction: a.completeLiveRuns,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.all && len(args) > 0:
				return usageErrorf("--all stops every live run: name none")
			case !o.all && len(args) == 0:
				return &hintedError{usageErrorf("say which runs to stop, or use --all"), `"spool ps --live" lists the live runs`}
			}
			return nil
		},
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
	flags.BoolVar(&o.all, "all", false, "stop every live run")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line, one line per run")
	cmd.MarkFlagsMutuallyExclusive("signal", "grace", "now")
	completeWords(cmd, "signal", []string{"HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "KILL", "CONT", "STOP", "WINCH"})
	return cmd
}

var signalArg = lazyregexp.New(`^-([0-9]{1,2}|(?:SIG)?[A-Z][A-Z0-9]+)$`)

// signalArgs turns the arguments -9, -KILL and -HUP of kill into flags.
func signalArgs(args []string) []string {
	out := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		if m := signalArg().FindStringSubmatch(arg); m != nil {
			switch strings.TrimPrefix(m[1], "SIG") {
			case "9", "KILL":
				arg = "--now"
			default:
				arg = "--signal=" + m[1]
			}
		}
		out = append(out, arg)
	}
	return out
}

func (a *app) kill(ctx context.Context, b spool.Backend, names []string, o killOptions) error {
	if o.grace < 0 {
		return usageErrorf("--grace must not be negative")
	}
	if n, err := strconv.Atoi(o.signal); err == nil {
		if o.signal = unix.SignalName(unix.Signal(n)); o.signal == "" {
			return usageErrorf("--signal: there is no signal %d", n)
		}
	}
	if o.signal != "" && unix.SignalNum("SIG"+strings.TrimPrefix(strings.ToUpper(o.signal), "SIG")) == 0 {
		return usageErrorf("--signal: there is no signal %q", o.signal)
	}
	if o.all {
		for info, err := range b.List(ctx, spool.Filter{Live: true}) {
			if err != nil {
				return err
			}
			names = append(names, string(info.ID))
		}
		if len(names) == 0 {
			fmt.Fprintln(a.stderr, "spool: kill: no run is live")
		}
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
		if o.json {
			errs = append(errs, a.printRun(ctx, run))
			continue
		}
		fmt.Fprintf(a.stdout, "%s %s\n", run.ID(), outcome)
	}
	return errors.Join(errs...)
}

// printRun prints the description of a run as JSON.
func (a *app) printRun(ctx context.Context, run *spool.Run) error {
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	return a.printJSON(info)
}

// killOne signals, stops or kills one run. It returns the run if the caller has
// to wait for its end.
func (a *app) killOne(ctx context.Context, b spool.Backend, name string, o killOptions) (*spool.Run, error) {
	run, info, err := findInfo(ctx, b, name)
	if err != nil {
		return nil, err
	}
	if o.signal != "" {
		if err := run.Signal(ctx, o.signal); err != nil {
			return nil, err
		}
		if o.json {
			return nil, a.printRun(ctx, run)
		}
		fmt.Fprintf(a.stdout, "sent %s to %s\n", strings.ToUpper(o.signal), info.ID)
		return nil, nil
	}
	if info.State == spool.StateClosed {
		if o.json {
			return nil, a.printJSON(info)
		}
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
