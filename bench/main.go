// Command bench measures Spool and codex exec-server on the same machine at the
// same time, with the same work and the same client, and prints the ratios.
//
// Usage:
//
//	bench -spool PATH [-codex PATH] [-json FILE] [-comparison FILE] [-only NAMES] [-peers NAMES] [-tasks NAMES] [-rounds N] [-logs MiB] [-quick] [-strict]
//
// Both servers listen on the loopback. A client written for measuring drives
// them over the codex exec-server protocol. Every measurement is made in rounds
// that alternate between the two, so that other load of the machine affects
// both. Without -codex the reference is installed from npm into the user's cache
// directory.
//
// Kernels are measured beside ipykernel, through jupyter_client, and the runner
// of oh-my-pi; both are installed into the cache directory as well.
//
// Sandboxes are measured beside python3 without a sandbox and beside Pyodide in
// Node.
//
// Isolated runs are measured beside plain ones, bubblewrap with the flags of codex
// and srt, which is installed into the cache directory; bubblewrap, socat and
// ripgrep must be on the PATH.
//
// Servers that a user would pick instead of Spool are measured beside it, each
// behind the driver that package peers has for it; they are installed into the
// cache directory, and one that cannot be is reported with the reason.
//
// Growth is measured with generated state directories of up to a million finished
// runs, which take some minutes, a million files and 4 GiB of disk space; with -quick
// of up to ten thousand.
//
// The HTTP server is measured with clients of its own, beside the servers that are
// installed for the comparison, wetty and the exec-server of codex: logs of 1 GiB,
// and thousands of readers in another process, as many as the limit of open files allows.
//
// The clients for Python and TypeScript are measured from the directory sdk of the
// working directory.
//
// With -strict the exit status is 1 if a goal is missed. A measurement that
// fails always makes it 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/isolate"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "-chatty" {
		if err := chatter(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "bench -chatty:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case crowdRole:
			if err := runCrowd(os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, "bench -crowd:", err)
				os.Exit(1)
			}
			return
		case servedRole:
			if err := serveInProcess(); err != nil {
				fmt.Fprintln(os.Stderr, "bench exec-server:", err)
				os.Exit(1)
			}
			return
		case sandboxRole:
			os.Exit(wasipy.Work(os.Args[2:]))
		case isolate.Role:
			os.Exit(isolate.Work(os.Args[2:]))
		case pyodide.Role:
			os.Exit(pyodide.RunRole(os.Args[2:]))
		}
	}
	// The heap of this process is tiny and much output passes through it: with
	// the default the clients would mostly collect garbage.
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	spool  string
	codex  string
	json   string
	only   string
	peers  string
	tasks  string
	rounds int
	logs   int // MiB
	quick  bool
	strict bool

	comparison string
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.spool, "spool", "bin/spool", "measure the spool binary at `path`")
	fs.StringVar(&o.codex, "codex", "", "compare with the codex binary at `path` (default: install it)")
	fs.StringVar(&o.json, "json", "", "write the results to `file`")
	fs.StringVar(&o.comparison, "comparison", "", "write the results of the peers to `file`, as a page of the documentation")
	fs.StringVar(&o.only, "only", "", "make only these measurements, `names` separated by commas: "+strings.Join(measurementNames(), ", "))
	fs.StringVar(&o.peers, "peers", "", "measure only these peers beside Spool, `names` separated by commas")
	fs.StringVar(&o.tasks, "tasks", "", "have the peers do only these tasks, `names` separated by commas: "+strings.Join(peerTaskNames(), ", ")+"; or make only these parts of http: "+strings.Join(httpPartNames(), ", "))
	fs.IntVar(&o.rounds, "rounds", 0, "make every measurement `n` times (default 5, with -quick 2)")
	fs.IntVar(&o.logs, "logs", 1024, "search this many `MiB` of logs, a quarter of it with -quick")
	fs.BoolVar(&o.quick, "quick", false, "do less work; the numbers are less exact")
	fs.BoolVar(&o.strict, "strict", false, "exit with status 1 when a goal is missed")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, errors.New("unexpected argument " + strconv.Quote(fs.Arg(0)))
	}
	if o.rounds <= 0 {
		o.rounds = 5
		if o.quick {
			o.rounds = 2
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	chosen, err := chooseMeasurements(o.only)
	if err != nil {
		return err
	}
	if err := checkPeerTasks(o.tasks); err != nil {
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()

	failed := b.measure(ctx, chosen)
	rep := b.report()
	if err := rep.writeTable(os.Stdout); err != nil {
		return err
	}
	if o.json != "" {
		if err := rep.writeJSON(o.json); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	if o.comparison != "" {
		if err := rep.writeComparison(o.comparison); err != nil {
			return err
		}
	}
	if missed := rep.missed(); o.strict && missed > 0 {
		return fmt.Errorf("%d goals missed", missed)
	}
	return nil
}
