package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// attachOptions are the flags of spool attach.
type attachOptions struct {
	after   int64
	json    bool
	noStdin bool
	eof     bool
	keys    keySequence
}

func (a *app) attachCommand() *cobra.Command {
	o := attachOptions{keys: defaultDetachKeys}
	cmd := &cobra.Command{
		Use:   "attach [flags] RUN",
		Short: "Connect this terminal to a live run",
		Long: `Attach prints the output of a live run from now on and forwards your input to
it, until the run has finished or you detach. The run continues after you detach:
press Ctrl-P Ctrl-Q (see --detach-keys) if the run has a terminal, or Ctrl-C if it
has none. Closing the terminal detaches, too.

On a terminal, a run that has one is shown as it is now: its screen is drawn from
its log, and the run is not asked for anything. After you detach your terminal is
as it was. The run's terminal gets the size of yours, except with --no-stdin.

A process of the run itself cannot attach to it: the output would be its own.

On a terminal, a Python run reads cells as "spool py" does.

Attach forwards the end of input if you typed it, or with --eof.

Exit codes: the exit code of the run, or 128+N if signal N ended it; 124 if it
timed out; 0 after you detach; 125 if spool failed.`,
		Example: `  spool attach web
  spool attach --after 0 web
  echo 'print(6 * 7)' | spool attach repl`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeLiveRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.attach(cmd.Context(), b, args[0], o)
			})
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&o.after, "after", -1, "start after the event with this `seq` (default: the next event)")
	flags.Lookup("after").DefValue = "0" // which the help does not print
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.BoolVar(&o.noStdin, "no-stdin", false, "do not forward input")
	flags.BoolVar(&o.eof, "eof", false, "forward the end of input, even if it was not typed")
	flags.Var(&o.keys, "detach-keys", "`keys` that detach, such as ctrl-a,d; or none")
	return cmd
}

func (a *app) attach(ctx context.Context, b spool.Backend, name string, o attachOptions) error {
	run, info, err := findInfo(ctx, b, name)
	if err != nil {
		return err
	}
	if info.State == spool.StateClosed {
		return fmt.Errorf("run %s: %w", info.ID, spool.ErrEnded)
	}
	if err := checkNotInside("attach", &info); err != nil {
		return err
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGWINCH)
	defer stop()
	typed := isTerminal(a.stdin)
	if info.Engine == python.EngineKernel && typed && !o.json && !o.noStdin && foreground(a.stdin) {
		k := &interpreter{backend: b, run: run, after: info.Last}
		return a.repl(ctx, k, &pyOptions{}, signals)
	}
	t := &attachment{
		run: run, status: &a.reconnecting, tty: info.TTY, eof: o.eof || typed, typed: typed, keys: o.keys, signals: signals,
		after: info.Last, sizes: []*os.File{a.stdin, a.stdout},
		printer: &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), blobs: run, json: o.json},
		react:   func(os.Signal) (func(context.Context) error, error) { return nil, errDetached },
	}
	if o.after >= 0 {
		t.after = spool.Seq(o.after)
	} else if info.TTY {
		t.screen = &info
	}
	if !o.noStdin && (!typed || foreground(a.stdin)) {
		t.stdin = a.stdin
	}
	if typed && isTerminal(a.stderr) {
		keys := "Ctrl-C"
		if info.TTY && t.stdin != nil {
			keys = o.keys.text(" ")
		}
		fmt.Fprintf(a.stderr, "spool: attached to %s; press %s to detach\n", shorten(string(info.ID)), keys)
	}
	if t.stdin == nil {
		t.sizes = nil // looking does not change the run
	}
	if err := t.resize(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
		return err
	}
	outcome, err := t.follow(ctx)
	if errors.Is(err, errDetached) || errors.Is(err, errHungUp) {
		if typed {
			a.sayDetached(&info)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return ended(outcome)
}

// sayDetached says that a run continues, and how to come back to it.
func (a *app) sayDetached(info *spool.Info) {
	name := shownName(info)
	fmt.Fprintf(a.stderr, "spool: detached; %s is still running; \"spool attach %s\" connects again\n", name, name)
}
