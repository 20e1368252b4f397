package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spool-run/spool/internal/torture"
)

// tortureFlags are the flags of spool torture.
type tortureFlags struct {
	opts   torture.Options
	faults string
	rss    byteCount
	disk   byteCount
	dir    string
	asJSON bool
	steps  int
	soak   torture.SoakOptions
}

func (a *app) tortureCommand() *cobra.Command {
	f := tortureFlags{rss: torture.DefaultMaxRSS, disk: torture.DefaultDisk}
	var names []string
	for _, fault := range torture.Faults {
		names = append(names, string(fault))
	}
	cmd := &cobra.Command{
		Use:   "torture [flags]",
		Short: "Prove that nothing is lost, whatever breaks",
		Long: `Torture starts a server and has it run workers that write numbered, checksummed
records on pipes and terminals, while connections are cut, readers stall, and
the server, its keeper and the workers are killed. It then checks for every run
that nothing was lost, repeated, reordered, invented or left running, that exit
codes are exact, and that the log reads the same afterwards.

What happens follows from --seed; --print shows it without doing it. With --url
or --peer another server of this machine is put to the test, such as codex: it
gets the faults that a client and its workers can cause. An outcome of unknown
is accepted only for runs that lived during a fault that allows it, and counted.

With --kernels it has a server keep Python interpreters instead, asks them all
that cells do, and checks that every cell ends as it should, that no process and
no descriptor stays, and that all are gone when their keeper is killed.

Exit codes: 0 if every promise was kept; 1 if one was broken, or not everything
that was asked for could be done.`,
		Example: `  spool torture
  spool torture --seed 7 --disconnects 10000 --kills 200
  spool torture --faults cut,stall --duration 1m --json
  spool torture --peer "$(command -v codex)"
  spool torture --url ws://127.0.0.1:9000
  spool torture --kernels 1000 --cells 10000`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.torture(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.opts.Seed, "seed", 1, "what everything follows from")
	flags.StringVar(&f.faults, "faults", strings.Join(names, ","), "`list` of faults to use")
	flags.DurationVar(&f.opts.Duration, "duration", 0, "end after this `time` at the latest (default 30s if there is no other goal)")
	flags.IntVar(&f.opts.Runs, "runs", 0, "go on until so many runs ended")
	flags.IntVar(&f.opts.Disconnects, "disconnects", 0, "go on until so many connections were cut")
	flags.IntVar(&f.opts.Kills, "kills", 0, "go on until the server was killed so often")
	flags.IntVar(&f.opts.Clients, "clients", torture.DefaultClients, "clients that speak as codex does")
	flags.IntVar(&f.opts.Natives, "spool-clients", torture.DefaultNatives, "clients that speak Spool's own methods")
	flags.IntVar(&f.opts.Live, "live", torture.DefaultLive, "runs at once of each client")
	flags.DurationVar(&f.opts.Grace, "grace", torture.DefaultGrace, "`time` after which nothing of an ended run may live")
	flags.DurationVar(&f.opts.Hang, "hang", torture.DefaultHang, "`time` without news after which a run is given up")
	flags.Var(&f.rss, "max-rss", "memory the server may hold, in `bytes`")
	flags.Var(&f.disk, "disk-size", "size of the disk that is filled, in `bytes`")
	flags.StringVar(&f.opts.URL, "url", "", "`URL` of a server to torture instead of one of its own")
	flags.StringVar(&f.opts.Peer, "peer", "", "`binary` of another exec-server, such as codex, to start and torture")
	flags.StringVar(&f.dir, "dir", "", "`directory` to work in, which is kept (default a temporary one)")
	flags.IntVar(&f.soak.Kernels, "kernels", 0, "start so many Python interpreters, instead of all else")
	flags.IntVar(&f.soak.Cells, "cells", 0, "and run so many cells in them (default 10 each)")
	flags.StringVar(&f.soak.Python, "python", "", "`interpreter` for them")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	flags.IntVar(&f.steps, "print", 0, "print the first `n` faults of each lane and do nothing")
	return cmd
}

// tortureWorkerCommand is what torture has the server run.
func (a *app) tortureWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:                torture.WorkerVerb,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return exit(torture.Work(args)) },
	}
}

func (a *app) torture(ctx context.Context, f *tortureFlags) (err error) {
	o := f.opts
	if o.Faults, err = torture.ParseFaults(f.faults); err != nil {
		return &usageError{err}
	}
	for _, n := range []*int{&o.Clients, &o.Natives} {
		if *n == 0 {
			*n = -1 // zero would mean the default
		}
	}
	if f.steps > 0 {
		return a.printSchedule(&o, f.steps)
	}
	if o.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find the binary: %w", err)
	}
	if o.Dir = f.dir; o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "spool-torture-"); err != nil {
			return fmt.Errorf("make a directory to work in: %w", err)
		}
		defer func() {
			if rmErr := os.RemoveAll(o.Dir); rmErr != nil {
				err = errors.Join(err, rmErr)
			}
		}()
	} else if o.Dir, err = filepath.Abs(f.dir); err == nil {
		err = os.MkdirAll(o.Dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("make a directory to work in: %w", err)
	}
	if f.soak.Kernels > 0 {
		ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
		defer stop()
		soak := f.soak
		soak.Seed, soak.Binary, soak.Dir = o.Seed, o.Binary, o.Dir
		if soak.Cells == 0 {
			soak.Cells = 10 * soak.Kernels
		}
		return a.soakKernels(ctx, soak, f.asJSON)
	}
	o.MaxRSS, o.Disk = int64(f.rss), int64(f.disk)
	if a.verbose {
		o.Log = a.stderr
	}
	if term.IsTerminal(int(a.stderr.Fd())) && !a.verbose {
		o.Progress = a.tortureProgress
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	report, err := torture.Run(ctx, o)
	if o.Progress != nil {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		err = report.WriteJSON(a.stdout)
	} else {
		err = report.WriteTable(a.stdout)
	}
	if err == nil && report.Failed() {
		return exit(exitFailure)
	}
	return err
}

// tortureProgress says on one line how it goes.
func (a *app) tortureProgress(r *torture.Report) {
	broken := int64(0)
	for _, n := range r.Violations {
		broken += n
	}
	fmt.Fprintf(a.stderr, "\r\x1b[K%s  runs %d  events %d  disconnects %d  kills %d  violations %d",
		(time.Duration(r.DurationMs) * time.Millisecond).Round(time.Second), r.Runs, r.Events, r.Disconnects, r.Kills, broken)
}

// printSchedule shows what would happen.
func (a *app) printSchedule(o *torture.Options, steps int) error {
	for lane := -1; lane < max(0, o.Clients)+max(0, o.Natives); lane++ {
		name := fmt.Sprintf("connection %d", lane)
		if lane < 0 {
			name = "server"
		}
		left := steps
		for step := range torture.Schedule(o.Seed, lane, o.Faults) {
			if left--; left < 0 {
				break
			}
			if _, err := fmt.Fprintf(a.stdout, "%-14s %s\n", name, step); err != nil {
				return err
			}
		}
	}
	return nil
}
