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
	upkeep int
}

func (a *app) tortureCommand() *cobra.Command {
	f := tortureFlags{rss: torture.DefaultMaxRSS, disk: torture.DefaultDisk}
	var names []string
	for _, fault := range torture.Faults {
		names = append(names, string(fault))
	}
	cmd := &cobra.Command{
		Use:   "torture [flags]",
		Short: "Check that nothing is lost when things break",
		Long: `Torture starts a server that runs workers, which write numbered, checksummed
records to pipes and terminals, while torture cuts connections, stalls readers,
and kills the server, its keeper and the workers. It then checks for every run
that nothing was lost, repeated, reordered, invented or left running, that exit
codes are exact, and that the log reads the same afterwards.

--seed determines all faults; --print prints them without causing them. --url and
--peer test another server on this machine, such as codex, with the faults that a
client and its workers can cause. Torture accepts an unknown outcome only for
runs that were live during a fault that allows it, and counts them.

--upkeep tests the state directory instead: it kills processes that migrate it from the
layout of earlier versions, compress its logs and prune its runs, and checks that
nothing is lost, repeated or torn and that the index agrees with one built anew.

--kernels tests Python interpreters instead: it runs cells of every kind and
checks that every cell ends as expected, that no process and no descriptor stays,
and that all interpreters are gone when their keeper is killed.

Exit codes: 0 if every check passed; 1 if a check failed, or a goal was not
reached.`,
		Example: `  spool torture
  spool torture --seed 7 --disconnects 10000 --kills 200
  spool torture --faults cut,stall --duration 1m --json
  spool torture --peer "$(command -v codex)"
  spool torture --url ws://127.0.0.1:9000
  spool torture --upkeep 200
  spool torture --kernels 1000 --cells 10000`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.torture(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.opts.Seed, "seed", 1, "seed of the random faults")
	flags.StringVar(&f.faults, "faults", strings.Join(names, ","), "`list` of faults to cause")
	flags.DurationVar(&f.opts.Duration, "duration", 0, "stop after this `time` (default 30s if there is no other goal)")
	flags.IntVar(&f.opts.Runs, "runs", 0, "continue until this many runs ended")
	flags.IntVar(&f.opts.Disconnects, "disconnects", 0, "continue until this many connections were cut")
	flags.IntVar(&f.opts.Kills, "kills", 0, "continue until the server was killed this many times")
	flags.IntVar(&f.opts.Clients, "clients", torture.DefaultClients, "number of clients that use the codex protocol")
	flags.IntVar(&f.opts.Natives, "spool-clients", torture.DefaultNatives, "number of clients that use Spool's own protocol")
	flags.IntVar(&f.opts.Live, "live", torture.DefaultLive, "concurrent runs per client")
	flags.DurationVar(&f.opts.Grace, "grace", torture.DefaultGrace, "`time` after which no process of an ended run may be alive")
	flags.DurationVar(&f.opts.Hang, "hang", torture.DefaultHang, "`time` without events after which a run counts as hung")
	flags.Var(&f.rss, "max-rss", "memory limit of the server, in `bytes`")
	flags.Var(&f.disk, "disk-size", "size of the disk that torture fills, in `bytes`")
	flags.StringVar(&f.opts.URL, "url", "", "`URL` of a running server to test")
	flags.StringVar(&f.opts.Peer, "peer", "", "`binary` of another exec-server, such as codex, to start and test")
	flags.StringVar(&f.dir, "dir", "", "working `directory`, kept afterwards (default: a temporary one)")
	flags.IntVar(&f.upkeep, "upkeep", 0, "kill this many processes that look after a state directory, instead of servers")
	flags.IntVar(&f.soak.Kernels, "kernels", 0, "test this many Python interpreters instead of servers")
	flags.IntVar(&f.soak.Cells, "cells", 0, "with --kernels: number of cells (default 10 per interpreter)")
	flags.StringVar(&f.soak.Python, "python", "", "with --kernels: `interpreter` to use")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	flags.IntVar(&f.steps, "print", 0, "print the first `n` faults of each lane and exit")
	return cmd
}

// tortureWorkerCommand is the worker that torture runs on the server.
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
			*n = -1 // zero means the default
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
	if f.upkeep > 0 {
		ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
		defer stop()
		return a.tortureUpkeep(ctx, torture.UpkeepOptions{Seed: o.Seed, Binary: o.Binary, Dir: o.Dir, Kills: f.upkeep}, f.asJSON)
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

// tortureProgress prints the progress on one line.
func (a *app) tortureProgress(r *torture.Report) {
	broken := int64(0)
	for _, n := range r.Violations {
		broken += n
	}
	fmt.Fprintf(a.stderr, "\r\x1b[K%s  runs %d  events %d  disconnects %d  kills %d  violations %d",
		(time.Duration(r.DurationMs) * time.Millisecond).Round(time.Second), r.Runs, r.Events, r.Disconnects, r.Kills, broken)
}

// printSchedule prints the first faults of each lane.
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
