package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// runOptions are the flags of spool run.
type runOptions struct {
	tty      bool
	json     bool
	cwd      string
	env      []string
	cleanEnv bool
	name     string
	id       string
	detach   bool
	limits   limitFlags
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- command [argument…]",
		Short: "Run a command and keep its log",
		Long: `Run starts a command, prints its output, and exits with its exit code. The
command is executed directly, not by a shell. "spool logs" reads its log while
the command runs and afterwards.

Run forwards its standard input to the command, and also SIGINT, SIGTERM, SIGHUP
and SIGQUIT. A second SIGINT within a second kills the command and everything it
started. With --tty the command gets its own terminal of the same size, and all
keys go to the command.

On this machine the command inherits your environment. On a server it inherits
the core variables of the server. --env adds variables; --clean-env starts from
an empty environment.

Exit codes: the command's own; 128+N if signal N ended it; 125 if spool failed;
126 if the command cannot be executed; 127 if it does not exist.`,
		Example: `  spool run -- make test
  spool run --tty -- vim notes.txt
  spool run --name web --timeout 1h -- python3 -m http.server
  spool run --json -- sh -c 'echo out; echo err >&2'
  spool run --detach --name db -- postgres -D data
  spool run --server ws://127.0.0.1:9000 --env LANG=C -- uname -a`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeCommand,
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.run(cmd.Context(), &o, argv)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command are the command's
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.BoolVar(&o.cleanEnv, "clean-env", false, "start from an empty environment")
	flags.StringVar(&o.name, "name", "", "`name` of the run")
	flags.StringVar(&o.id, "id", "", "`id` of the run, instead of a new one")
	flags.BoolVarP(&o.detach, "detach", "d", false, "run in the background and print the run's id; see spool attach, logs, wait and kill")
	o.limits.add(flags, "")
	return cmd
}

func (a *app) run(ctx context.Context, o *runOptions, argv []string) error {
	spec, err := a.spec(o, argv)
	if err != nil {
		return err
	}
	return a.runSpec(ctx, o, spec)
}

// runSpec starts a run, prints its output and exits with its exit code.
func (a *app) runSpec(ctx context.Context, o *runOptions, spec spool.Spec) error {
	return with(a.open, ctx, func(b spool.Backend) error {
		signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGWINCH, unix.SIGPIPE)
		defer stop()
		run, err := start(ctx, b, spec, signals)
		if err != nil {
			return err
		}
		if o.detach && o.json {
			info, err := run.Info(ctx)
			if err != nil {
				return err
			}
			return a.printJSON(info)
		}
		if o.detach {
			_, err := fmt.Fprintln(a.stdout, run.ID())
			return err
		}
		if a.verbose {
			fmt.Fprintf(a.stderr, "spool: run %s\n", run.ID())
		}
		t := &attachment{
			run: run, tty: o.tty, eof: true, signals: signals, sizes: []*os.File{a.stdin, a.stdout},
			printer: &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), json: o.json},
			react:   (&forwarder{run: run}).react,
		}
		if o.tty || spec.Stdin {
			t.stdin = a.stdin
		}
		outcome, err := t.follow(ctx)
		var broken *writeError
		if errors.As(err, &broken) {
			// The output has no reader any more; end the run.
			err = errors.Join(err, run.Kill(ctx))
			if errors.Is(err, syscall.EPIPE) {
				return exit(exitSignal + int(unix.SIGPIPE))
			}
		}
		if err != nil {
			return err
		}
		return ended(outcome)
	})
}

// start starts a run. A signal that arrives meanwhile is sent to the run once it
// has started. A second signal, or a start that takes longer than killWithin
// after a signal, cancels the start.
func start(ctx context.Context, b spool.Backend, spec spool.Spec, signals chan os.Signal) (*spool.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		run *spool.Run
		err error
	}
	done := make(chan result, 1)
	go func() {
		run, err := spool.Start(ctx, b, spec)
		done <- result{run, err}
	}()
	var caught []os.Signal
	for {
		select {
		case r := <-done:
			if r.err != nil && len(caught) > 0 {
				return nil, &exitError{exitSignal + signalNumber(caught[0]), r.err}
			}
			for _, s := range caught {
				select {
				case signals <- s:
				default: // the channel is full of signals
				}
			}
			return r.run, r.err
		case s := <-signals:
			if s == unix.SIGWINCH || s == unix.SIGPIPE {
				continue
			}
			caught = append(caught, s)
			if len(caught) > 1 {
				cancel()
			}
			defer time.AfterFunc(killWithin, cancel).Stop()
		}
	}
}

// ended returns the error that ends a command with the outcome of its run.
func ended(o spool.Outcome) error {
	if o.Kind == spool.Exited {
		return exit(o.Code)
	}
	return &exitError{exitSpool, errors.New(o.String())}
}

// spec builds the spec of the run from the flags.
func (a *app) spec(o *runOptions, argv []string) (spool.Spec, error) {
	_, remote := a.remote()
	limits, err := o.limits.limits()
	if err != nil {
		return spool.Spec{}, err
	}
	spec := spool.Spec{
		ID: spool.RunID(o.id), Name: o.name, Argv: argv, Cwd: o.cwd, Limits: limits,
		EnvPolicy: envPolicy(o.cleanEnv, remote),
	}
	if spec.Env, err = overlay(o.env); err != nil {
		return spec, err
	}
	if !remote {
		// A relative path is relative to this process.
		if spec.Cwd, err = filepath.Abs(o.cwd); err != nil {
			return spec, fmt.Errorf("find the working directory: %w", err)
		}
	}
	if o.tty {
		size, _ := terminalSize(a.stdin, a.stdout)
		spec.TTY = &size
		if _, set := spec.Env["TERM"]; !set && remote && !o.cleanEnv && os.Getenv("TERM") != "" {
			spec.Env["TERM"] = os.Getenv("TERM")
		}
	} else {
		spec.Stdin = !o.detach && (!isTerminal(a.stdin) || foreground(a.stdin))
	}
	return spec, nil
}

// overlay parses the values of --env.
func overlay(values []string) (map[string]string, error) {
	env := make(map[string]string)
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if name == "" {
			return nil, usageErrorf("--env %q has no name: use NAME=VALUE or NAME", v)
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		env[name] = value
	}
	return env, nil
}

// envPolicy returns which variables a run inherits: on this machine all of the
// caller's, on a server the core variables.
func envPolicy(clean, remote bool) *spool.EnvPolicy {
	switch {
	case clean:
		return &spool.EnvPolicy{Inherit: "none"}
	case remote:
		return &spool.EnvPolicy{Inherit: "core"}
	}
	return &spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
}

// completeCommand completes the name of a program.
func completeCommand(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
