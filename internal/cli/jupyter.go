package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/jupyter"
	"github.com/spool-run/spool/python"
)

const (
	// defaultNotebookIdle is the time after which the run of a notebook ends that
	// nobody uses.
	defaultNotebookIdle = 7 * 24 * time.Hour
	// jupyterLabel labels the run of a Jupyter kernel with its session.
	jupyterLabel = "jupyter"
	// parentPoll is how often a kernel looks whether its front end still runs.
	parentPoll = time.Second
)

// jupyterOptions are the flags of spool jupyter kernel.
type jupyterOptions struct {
	pyOptions
	logLevel string
}

func (a *app) jupyterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jupyter",
		Short: "Be a kernel for Jupyter",
		Long: `Jupyter makes Spool a kernel of JupyterLab, nbclient, papermill and other front ends.
"spool jupyter install" registers it; docs/jupyter.md describes it.

Behind the kernel is a run, which has the state and the log. It goes on when the front
end, the Jupyter server or the kernel's own process is killed, and ends when the front
end shuts the kernel down. Output waits in the log while no front end is connected.`,
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.jupyterInstallCommand(), a.jupyterUninstallCommand(), a.jupyterListCommand(), a.jupyterKernelCommand())
	return cmd
}

func (a *app) jupyterKernelCommand() *cobra.Command {
	var o jupyterOptions
	cmd := &cobra.Command{
		Use:   "kernel [flags] CONNECTION_FILE",
		Short: "Serve one kernel, as a front end of Jupyter starts it",
		Long: `Kernel serves the kernel whose sockets and key CONNECTION_FILE names. A front end of
Jupyter starts it; "spool jupyter install" tells the front end how.

With a session, a kernel whose front end was killed is found again: the next kernel
of the same session uses the same run. The session is that of --session, of
SPOOL_JUPYTER_SESSION, or the path of the notebook that a Jupyter server names in
JPY_SESSION_NAME. Without any, each kernel has a run of its own.

With a session of --session or SPOOL_JUPYTER_SESSION, a program that runs a notebook from
the top goes on where another one was cut off: cells that repeat the first cells of the
run are answered from its log, or wait for the one that runs, and are not executed
again. The first cell that differs ends that.

Exit codes: 0 after a shutdown, after the end of the run, or when the front end is gone;
1 on failure; 2 on a usage error.`,
		Example: `  spool jupyter kernel connection.json
  SPOOL_JUPYTER_SESSION=nightly papermill report.ipynb out.ipynb`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return a.jupyterKernel(cmd.Context(), &o, args[0]) },
	}
	o.addNotebook(cmd)
	cmd.Flags().StringVar(&o.session, "session", "", "use the run of this `session`, and resume it (default $SPOOL_JUPYTER_SESSION)")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "", "log to stderr at this `level` and above: debug, info, warn or error")
	return cmd
}

// addNotebook adds the flags that configure the interpreter of a notebook.
func (o *pyOptions) addNotebook(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.python, "python", "", "`interpreter` to use; see \"spool py --help\" for the default")
	flags.StringVar(&o.envFrom, "env-from", "", "`which` variables of the front end's environment Python gets: usual or all (default usual)")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringVar(&o.init, "init", "", "`file` of code to run before the first cell")
	flags.StringSliceVar(&o.preload, "preload", nil, "`modules` to import before the first cell, such as numpy,pandas")
	flags.DurationVar(&o.start, "start-timeout", 0, "`time` the interpreter may take to start (default 1m)")
	flags.DurationVar(&o.idle, "idle", defaultNotebookIdle, "`time` without a cell after which the run ends; 0 for never")
	flags.Var(&o.memory, "memory", "`bytes` of memory the interpreter may use, such as 512M")
	o.files.add(flags, "")
	o.isolation.add(flags)
	o.workspace.add(flags)
}

// notebookSession returns the session of a kernel, and whether it is to be resumed.
func (o *jupyterOptions) notebookSession() (name string, resume bool) {
	if o.session != "" {
		return o.session, true
	}
	if name := os.Getenv("SPOOL_JUPYTER_SESSION"); name != "" {
		return name, true
	}
	return os.Getenv("JPY_SESSION_NAME"), false
}

func (a *app) jupyterKernel(ctx context.Context, o *jupyterOptions, file string) error {
	if o.idle < 0 || o.start < 0 {
		return usageErrorf("times must not be negative")
	}
	if err := a.checkEnvFrom(o.envFrom); err != nil {
		return err
	}
	log, err := newLogger(a.stderr, o.logLevel)
	if err != nil {
		return err
	}
	connection, err := jupyter.ReadConnection(file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A front end sends SIGINT to kernels that it does not know, and SIGTERM after a
	// shutdown that takes long. Neither ends the run.
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	return with(a.open, ctx, func(b spool.Backend) error {
		options := jupyter.Options{Backend: b, Connection: connection, Version: version().Version, Logger: log, Gone: a.parentGone(ctx)}
		session, resume := o.notebookSession()
		var found bool
		if options.Run, found, err = a.notebookRun(ctx, b, &o.pyOptions, session); err != nil {
			return err
		}
		options.Resume = found && resume
		if found && !resume {
			options.Note = fmt.Sprintf("spool: this is run %s, which was here before; %%outputs shows what its last cell did.\n", shorten(string(options.Run.ID())))
		}
		log.Info("serving", "run", options.Run.ID(), "session", session, "found", found)
		ended := make(chan error, 1)
		go func() { ended <- jupyter.Serve(ctx, options) }()
		for {
			select {
			case err := <-ended:
				return err
			case s := <-signals:
				if s == unix.SIGINT {
					if err := options.Run.Interrupt(ctx); err != nil {
						log.Warn("interrupt the run", "error", err)
					}
					continue
				}
				cancel()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				return nil
			}
		}
	})
}

// notebookRun finds the run of a session, or starts one.
func (a *app) notebookRun(ctx context.Context, b spool.Backend, o *pyOptions, session string) (run *spool.Run, found bool, err error) {
	if session != "" {
		for info, err := range b.List(ctx, spool.Filter{Engine: python.EngineKernel, Live: true, Labels: map[string]string{jupyterLabel: session}}) {
			if err != nil {
				return nil, false, err
			}
			if info.State == spool.StateRunning {
				return spool.Attach(b, info.ID), true, nil
			}
		}
	}
	own := *o
	own.session = "" // it is no name
	spec, err := a.pySpec(&own)
	if err != nil {
		return nil, false, err
	}
	spec.Limits.Idle = o.idle
	spec.Labels = map[string]string{jupyterLabel: session}
	run, err = spool.Start(ctx, b, spec)
	return run, false, err
}

// parentGone returns a channel that is closed when the process that started this one has
// ended.
func (a *app) parentGone(ctx context.Context) <-chan struct{} {
	parent := os.Getppid()
	gone := make(chan struct{})
	go func() {
		poll := time.NewTicker(parentPoll)
		defer poll.Stop()
		for os.Getppid() == parent {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return
			}
		}
		close(gone)
	}()
	return gone
}
