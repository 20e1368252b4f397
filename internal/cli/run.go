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
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// runOptions are the flags of spool run.
type runOptions struct {
	tty         bool
	lines       bool // --line-buffered
	json        bool
	interactive bool
	cwd         string
	env         []string
	envFiles    []string
	cleanEnv    bool
	name        string
	replace     bool
	labels      []string
	id          string
	detach      bool
	remove      bool
	notify      string
	keys        keySequence
	hangup      string
	limits      limitFlags
	isolation   isolationFlags
	workspace   workspaceFlags
	elsewhere   bool // another machine may start it
}

// What happens to the run when its reader is gone: the values of --hangup.
const (
	hangupKeep = "keep" // the run continues
	hangupStop = "stop" // the run gets SIGTERM, and SIGKILL after its grace
)

func (a *app) runCommand() *cobra.Command {
	o := runOptions{keys: defaultDetachKeys}
	cmd := &cobra.Command{
		Use:   "run [flags] -- command [argument…]",
		Short: "Run a command and keep its log",
		Long: `Run starts a command, prints its output, and exits with its exit code. The
command is executed directly, not by a shell. "spool logs" reads its log while
the command runs and afterwards.

Run forwards its standard input to the command, and also SIGINT, SIGTERM, SIGHUP
and SIGQUIT. A second SIGINT within a second kills the command and everything it
started. With --tty the command gets its own terminal of the same size, and all
keys go to the command, except those that detach: Ctrl-P Ctrl-Q, or the keys of
--detach-keys. After that the command continues; "spool attach" connects again.

If your terminal is closed, the command continues, too; --hangup stop stops it. If
the reader of the output ends, as in "spool run … | head", the command is stopped:
SIGTERM, then SIGKILL after --grace. With --hangup keep it continues.

Many programs write to a pipe in blocks, so that their output appears late.
--line-buffered gives the command a terminal as stdout, which passes bytes on
unchanged, and sets PYTHONUNBUFFERED; stdin and stderr stay pipes. A program that
looks for a terminal may add colours.

A name belongs to one live run: a second start with that name fails, unless
--replace stops the first.

On this machine the command inherits your environment. On a server it inherits
the core variables of the server. --env and --env-file add variables; --clean-env
starts from an empty environment. The variable SPOOL_RUN holds the id of the run,
except with --clean-env.

With --isolate the command cannot do what the profile says: write outside of its
working directory, use the network, see other processes. If this machine cannot
keep it from that, nothing is started, and the error says what to do;
"spool doctor isolation" shows what this machine offers. "spool inspect" shows
what a run is kept from, and by what.

With --isolate net-allow the command reaches only the hosts of --allow-net, through
a proxy that HTTP_PROXY and the like name; programs that do not use it have no
network. The log says which hosts were reached or refused, and how many bytes went
to each. With --ask-net the run asks about other hosts, and "spool answer" answers.

With --workspace overlay the command works on a copy-on-write view of its working
directory, which itself stays as it is: "spool diff" shows the changes, "spool apply"
makes them in the directory, and "spool discard" deletes them. It has no effect on
other directories; --isolate workspace-write keeps the command from them. With
--workspace snapshot the command works in the directory itself, and diff only reports
what it changed. With --workspace auto it is an overlay where this machine has one.

--notify starts a shell command when the run has ended, also if this terminal is gone
by then. It gets the directory and the environment of the run, and SPOOL_RUN (its
id), SPOOL_STATUS (such as "exited 0") and SPOOL_EXIT_CODE. It is a run of its own:
"spool ps --all --filter label=spool.notify=ID" finds it and its output.

Exit codes: the command's own; 128+N if signal N ended it; 124 if it timed out;
125 if spool failed; 126 if the command cannot be executed; 127 if it does not
exist; 0 after you detach.`,
		Example: `  spool run -- make test
  spool run --tty -- vim notes.txt
  spool run --name web --timeout 1h -- python3 -m http.server
  spool run --json -- sh -c 'echo out; echo err >&2'
  spool run --detach --name db -- postgres -D data
  spool run -d --name db --replace -e PGPORT=5433 -- postgres -D data
  spool run -d -i --name calc -- bc
  spool run -d --line-buffered --name train -- python3 train.py
  spool run --isolate no-network --protect .git -- make test
  spool run --isolate net-allow --allow-net pypi.org --allow-net '*.pythonhosted.org' -- pip install attrs
  spool run --workspace overlay --name try -- make format
  spool run -d --memory 2g --cpus 1.5 -- make -j
  spool run -d --notify 'notify-send "build: $SPOOL_STATUS"' -- make
  spool run --server ws://127.0.0.1:9000 --env LANG=C -- uname -a`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeCommand,
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.run(cmd.Context(), &o, argv)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command are the command's
	o.addSpecFlags(flags)
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.BoolVar(&o.replace, "replace", false, "stop the live run that has the name first")
	flags.BoolVarP(&o.detach, "detach", "d", false, "run in the background and print the run's id; see spool attach, logs, wait and kill")
	flags.BoolVar(&o.remove, "rm", false, "delete the run and its log after it has finished")
	o.addReaderFlags(flags)
	cmd.MarkFlagsMutuallyExclusive("rm", "detach")
	cmd.MarkFlagsMutuallyExclusive("tty", "line-buffered")
	return cmd
}

// addSpecFlags defines the flags about what to run.
func (o *runOptions) addSpecFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	flags.BoolVar(&o.lines, "line-buffered", false, "show each line at once, also of programs that write to a pipe in blocks")
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "keep standard input open, for spool attach if the run is in the background")
	flags.StringVarP(&o.cwd, "cwd", "w", "", "working `directory`")
	flags.StringVar(&o.cwd, "workdir", "", "the same as --cwd")
	_ = flags.MarkHidden("workdir")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringArrayVar(&o.envFiles, "env-file", nil, "set the environment variables in a `file` with lines NAME=VALUE")
	flags.BoolVar(&o.cleanEnv, "clean-env", false, "start from an empty environment")
	flags.StringVar(&o.name, "name", "", "`name` of the run, unique among live runs")
	flags.StringArrayVarP(&o.labels, "label", "l", nil, "add a label `NAME=VALUE`; see spool ps --filter")
	flags.StringVar(&o.id, "id", "", "`id` of the run, instead of a new one")
	flags.StringVar(&o.notify, "notify", "", "shell `command` to start when the run has ended; see spool run --help")
	o.limits.add(flags, "")
	o.isolation.add(flags)
	o.workspace.add(flags)
}

// addReaderFlags defines the flags about the terminal that reads the output.
func (o *runOptions) addReaderFlags(flags *pflag.FlagSet) {
	flags.Var(&o.keys, "detach-keys", "`keys` that detach with --tty, such as ctrl-a,d; or none")
	flags.StringVar(&o.hangup, "hangup", "", "`keep` or stop the run when the terminal is closed or the output has no reader (default: keep for a terminal, stop for other output)")
	flags.StringVar(&o.hangup, "on-hangup", "", "the same as --hangup")
	_ = flags.MarkHidden("on-hangup")
}

// check returns an error for flags that make no sense.
func (o *runOptions) check() error {
	if o.hangup != "" && o.hangup != hangupKeep && o.hangup != hangupStop {
		return usageErrorf("--hangup %q: use keep or stop", o.hangup)
	}
	return checkReplace(o.replace, o.name)
}

// checkReplace returns an error for --replace without --name.
func checkReplace(replace bool, name string) error {
	if replace && name == "" {
		return usageErrorf("--replace needs --name")
	}
	return nil
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
		// Asked before the start: the terminal may be gone after it.
		typed := isTerminal(a.stdin)
		terminal := typed || isTerminal(a.stdout)
		run, err := startOrReplace(ctx, b, spec, o.replace, signals)
		if err != nil {
			return err
		}
		if a.verbose {
			fmt.Fprintf(a.stderr, "spool: run %s\n", run.ID())
			if !o.tty && !o.lines {
				fmt.Fprintln(a.stderr, "spool: stdout is a pipe, to which many programs write in blocks; --line-buffered shows each line at once")
			}
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
		t := &attachment{
			run: run, status: &a.reconnecting, tty: o.tty, eof: true, typed: typed, keys: o.keys, signals: signals, sizes: []*os.File{a.stdin, a.stdout},
			printer: &printer{stdout: a.screen(a.stdout), stderr: a.screen(a.stderr), json: o.json},
			react:   (&forwarder{run: run, terminal: terminal}).react,
		}
		if o.tty || spec.Stdin {
			t.stdin = a.stdin
		}
		outcome, err := t.follow(ctx)
		switch {
		case errors.Is(err, errDetached), errors.Is(err, errHungUp):
			return a.leave(ctx, o, run, err)
		case errors.Is(err, syscall.EPIPE):
			return a.closedOutput(ctx, o, run, signals)
		case err != nil:
			var broken *writeError
			if errors.As(err, &broken) {
				err = errors.Join(err, run.Stop(ctx))
			}
			return err
		}
		if o.remove {
			if err := removeRun(ctx, b, run.ID()); err != nil {
				fmt.Fprintf(a.stderr, "spool: run: --rm: %v\n", err)
			}
		}
		return ended(outcome)
	})
}

// leave leaves a live run because the user detached or the terminal was closed.
func (a *app) leave(ctx context.Context, o *runOptions, run *spool.Run, why error) error {
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	if errors.Is(why, errDetached) {
		a.sayDetached(&info)
		return nil
	}
	code := exitSignal + int(unix.SIGHUP)
	if o.hangup == hangupStop {
		if err := run.Stop(ctx); err != nil {
			return err
		}
		return &exitError{code, fmt.Errorf("%w; stopped %s", why, shownName(&info))}
	}
	a.sayDetached(&info)
	return exit(code)
}

// closedOutput ends a run whose output has no reader any more, as SIGPIPE would
// end the command, and waits for its end. A signal meanwhile kills the run.
func (a *app) closedOutput(ctx context.Context, o *runOptions, run *spool.Run, signals <-chan os.Signal) error {
	code := exitSignal + int(unix.SIGPIPE)
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	if o.hangup == hangupKeep {
		return &exitError{code, fmt.Errorf("the output was closed; %s is still running", shownName(&info))}
	}
	if err := run.Stop(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := run.Wait(ctx)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			return &exitError{code, fmt.Errorf("the output was closed; stopped %s", shownName(&info))}
		case s := <-signals:
			if s == unix.SIGWINCH || s == unix.SIGPIPE {
				continue
			}
			if err := run.Kill(ctx); err != nil {
				return err
			}
		}
	}
}

// replaceTries is how often --replace stops a run that another process started
// meanwhile.
const replaceTries = 10

// startOrReplace starts a run. With replace, it first stops the live run that has
// the name.
func startOrReplace(ctx context.Context, b spool.Backend, spec spool.Spec, replace bool, signals chan os.Signal) (*spool.Run, error) {
	if replace {
		return startInstead(ctx, b, spec, signals)
	}
	return start(ctx, b, spec, signals)
}

// startInstead stops the live runs that have the name and starts a run.
func startInstead(ctx context.Context, b spool.Backend, spec spool.Spec, signals chan os.Signal) (*spool.Run, error) {
	for try := 1; ; try++ {
		for info, err := range b.List(ctx, spool.Filter{Name: spec.Name, Live: true}) {
			if err != nil {
				return nil, err
			}
			old := spool.Attach(b, info.ID)
			if isInside(info.ID) {
				return nil, fmt.Errorf("--replace would stop run %s, in which this command runs", shownName(&info))
			}
			if err := old.Stop(ctx); err != nil {
				return nil, fmt.Errorf("stop run %s: %w", info.ID, err)
			}
			if _, err := old.Wait(ctx); err != nil {
				return nil, fmt.Errorf("stop run %s: %w", info.ID, err)
			}
		}
		run, err := start(ctx, b, spec, signals)
		if err == nil || try == replaceTries || !isNameTaken(err) {
			return run, err
		}
	}
}

// isNameTaken reports whether a start failed because a live run has the name.
func isNameTaken(err error) bool {
	var refused *spool.StartError
	return errors.As(err, &refused) && refused.Reason == "name_taken"
}

// removeRun deletes a finished run.
func removeRun(ctx context.Context, b spool.Backend, id spool.RunID) error {
	remover, err := removerOf(b)
	if err != nil {
		return err
	}
	_, err = remover.Remove(ctx, []spool.RunID{id}, false)
	return err
}

// start starts a run. A signal that arrives meanwhile is sent to the run once it
// has started. A second signal, or a start that takes longer than killWithin
// after a signal, cancels the start.
func start(ctx context.Context, b spool.Backend, spec spool.Spec, signals chan os.Signal) (*spool.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	identify(&spec)
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
		return exit(o.ExitCode())
	}
	return &exitError{exitSpool, errors.New(o.String())}
}

// spec builds the spec of the run from the flags.
func (a *app) spec(o *runOptions, argv []string) (spool.Spec, error) {
	_, remote := a.remote()
	remote = remote || o.elsewhere
	if err := o.check(); err != nil {
		return spool.Spec{}, err
	}
	limits, err := o.limits.limits()
	if err != nil {
		return spool.Spec{}, err
	}
	spec := spool.Spec{
		ID: spool.RunID(o.id), Name: o.name, Argv: argv, Cwd: o.cwd, Limits: limits,
		EnvPolicy: envPolicy(o.cleanEnv, remote),
	}
	if spec.Isolation, err = o.isolation.isolation(); err != nil {
		return spec, err
	}
	if spec.Workspace, err = o.workspace.workspace(); err != nil {
		return spec, err
	}
	if spec.Env, err = overlay(o.env, o.envFiles); err != nil {
		return spec, err
	}
	if spec.Labels, err = parseLabels(o.labels); err != nil {
		return spec, err
	}
	if o.notify != "" {
		spec.Notify = []string{"/bin/sh", "-c", o.notify}
	}
	if !remote {
		// A relative path is relative to this process.
		if spec.Cwd, err = filepath.Abs(o.cwd); err != nil {
			return spec, fmt.Errorf("find the working directory: %w", err)
		}
	}
	if o.lines {
		spec.LineBuffered = true
		if _, set := spec.Env["PYTHONUNBUFFERED"]; !set && !o.cleanEnv {
			spec.Env["PYTHONUNBUFFERED"] = "1"
		}
	}
	if o.tty {
		size, _ := terminalSize(a.stdin, a.stdout)
		spec.TTY = &size
		if _, set := spec.Env["TERM"]; !set && remote && !o.cleanEnv && os.Getenv("TERM") != "" {
			spec.Env["TERM"] = os.Getenv("TERM")
		}
	} else {
		spec.Stdin = o.interactive || !o.detach && (!isTerminal(a.stdin) || foreground(a.stdin))
	}
	return spec, nil
}

// overlay parses the values of --env, and the files of --env-file before them.
func overlay(values, files []string) (map[string]string, error) {
	env := make(map[string]string)
	for _, name := range files {
		if err := readEnvFile(name, env); err != nil {
			return nil, err
		}
	}
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

// readEnvFile adds the variables in a file: lines NAME=VALUE, or NAME to pass a
// variable on. Empty lines and lines that begin with # are skipped.
func readEnvFile(name string, env map[string]string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read --env-file: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimLeft(strings.TrimRight(line, "\r\n"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key == "" || strings.ContainsAny(key, " \t") {
			return usageErrorf("--env-file %s, line %d: use NAME=VALUE or NAME", name, n)
		}
		if !ok {
			if value, ok = os.LookupEnv(key); !ok {
				continue
			}
		}
		env[key] = value
	}
	return nil
}

// parseLabels parses the values of --label.
func parseLabels(values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	labels := make(map[string]string)
	for _, v := range values {
		name, value, _ := strings.Cut(v, "=")
		if name == "" {
			return nil, usageErrorf("--label %q has no name: use NAME=VALUE", v)
		}
		labels[name] = value
	}
	return labels, nil
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
