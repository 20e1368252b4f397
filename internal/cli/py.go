package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/python"
)

const (
	// defaultSessionIdle is the time after which an unused session ends.
	defaultSessionIdle = time.Hour
	// maxSource is the maximum size of a cell, which must fit into an event.
	maxSource = 8 << 20
)

// Exit codes of cells that spool ended.
const (
	exitTimeout     = 124
	exitInterrupted = exitSignal + 2
	exitKilled      = exitSignal + 9
)

// pyOptions are the flags of spool py.
type pyOptions struct {
	code    string
	coded   bool // -c was given
	session string
	json    bool
	python  string
	cwd     string
	env     []string
	envFrom string
	init    string
	trace   string
	preload []string
	timeout time.Duration
	idle    time.Duration
	start   time.Duration
	memory  byteCount
	files   fileCount
	images  string
	file    string
	archive bool // file is a directory or a zip archive
	module  string
	args    []string
	once    bool // the interpreter runs one cell

	isolation isolationFlags
	workspace workspaceFlags
}

func (a *app) pyCommand() *cobra.Command {
	var o pyOptions
	cmd := &cobra.Command{
		Use:   "py [flags] [FILE | -m MODULE] [argument…]",
		Short: "Run Python with persistent state",
		Long: `Py runs Python in an interpreter that keeps its state between cells. On a
terminal it is a prompt: it reads a cell, runs it, and repeats. With -c, -m, a FILE,
or input that is not a terminal, it runs that as one cell. The last expression of
a cell is its result. Top-level await works, and so do %pip, !command, %%bash,
%time, %timeit, %cd, %env, %run, %%writefile and %%capture.

Py uses the interpreter of --python, or the first that works of: VIRTUAL_ENV,
CONDA_PREFIX, .venv or venv in the working directory, python3 and python in PATH.
"spool py doctor" shows which that is, and why not another. --init FILE runs code
in each new interpreter before its first cell. A FILE and -m MODULE run as "python
FILE" and "python -m MODULE" would run them; FILE may be a directory or a zip
archive with a __main__.py. Flags of spool come before FILE or -m.

The interpreter gets these variables of your environment:
  ` + wrapWords(environ.KernelNames, "") + `
except those whose names match one of
  ` + wrapWords(environ.KernelSecrets, "") + `
--env NAME passes on another, --env-from all passes on all, and -v prints which
variables the interpreter does not get.

The interpreter ends with the command, unless --session names it: then it stays,
and the next command with that name continues with its variables. A session ends
after --idle without use, or with "spool kill NAME". The flags that configure the
interpreter apply only when the command starts it.

At the prompt, Enter runs a complete cell, an empty line ends a block, Ctrl-C
interrupts the cell, and Ctrl-D exits. The arrow keys go to the other lines of the
cell, and from its first line to earlier cells; Alt-Enter runs the cell from any
line. Pasted lines are one cell. Tab completes names, attributes, keys, files,
%magics and !commands of the live interpreter; obj? describes an object, and obj??
shows its source. Ctrl-R searches the cells of earlier prompts; each directory has
its own. In, Out and _ hold the cells and their results. Images appear on terminals
with kitty, iTerm2 or sixel graphics; elsewhere, and with --images, they are saved
to files, and py prints where. NO_COLOR turns colours off, and on a terminal with TERM=dumb
the prompt reads plain lines.

With --isolate the interpreter and everything it starts cannot do what the profile
says, as with "spool run --isolate"; "spool inspect" shows what a session has. With
--ask-net a cell waits while it asks about a host, and "spool answer" answers.
With --workspace overlay it works on a view of its working directory. What it changed
is kept apart until "spool diff", "spool apply" and "spool discard", after its end.

With --json, stdin has one request per line and stdout one event per line:
  {"id":"c1","code":"1+1","timeout_ms":5000,"silent":false}  run a cell
  {"interrupt":true}                                  interrupt the running cell
  {"kill":true}                                       kill the running cell, and its interpreter
  {"stdin":"line\n"}, {"stdin_base64":"/wo="}         lines that answer input()
  {"close_stdin":true}                                no more lines: input() raises EOFError
  {"answer":SEQ,"data":"…"}                           answer the question with that seq
  {"restart":true}                                    restart with no state
  {"exit":true}                                       exit now
At the end of input, py exits once all cells are done. An interpreter runs each
id once; the "done" event of the cell carries the id. Py answers an invalid line
with an exception event of seq 0.

Exit codes: 0 if the cell succeeded; 1 if it raised, or the code of sys.exit; 2 if
FILE cannot be read; 124 if it timed out; 130 if it was interrupted; 137 if it was
killed; the exit code of the interpreter if that crashed; 125 if spool failed; 127
if there is no interpreter.`,
		Example: `  spool py
  spool py -c 'import sys; sys.version'
  spool py script.py --size 3
  spool py -m json.tool data.json
  spool py --session work -c 'x = 41'
  spool py --session work -c 'x + 1'
  spool py --isolate workspace-write --protect .git script.py
  echo '{"id":"c1","code":"1+1"}' | spool py --json
  spool py --server ws://127.0.0.1:9000 --timeout 30s -c 'import os; os.getcwd()'`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.coded = cmd.Flags().Changed("code")
			if err := checkModule(cmd, o.coded); err != nil {
				return err
			}
			o.file, o.args = scriptArgs(args, o.coded, o.module)
			if cmd.Flags().Changed("idle") && o.session == "" {
				return usageErrorf("--idle needs --session")
			}
			return a.py(cmd.Context(), &o)
		},
	}
	cmd.AddCommand(a.pyDoctorCommand())
	flags := cmd.Flags()
	flags.SetInterspersed(false) // arguments after the file are the script's
	flags.StringVarP(&o.code, "code", "c", "", "run this `code`")
	flags.StringVarP(&o.module, "module", "m", "", "run this `module`, with all later arguments")
	flags.StringVar(&o.session, "session", "", "use the interpreter with this `name`, and keep it running")
	flags.BoolVar(&o.json, "json", false, "read requests and print events, one JSON object per line")
	flags.StringVar(&o.python, "python", "", "`interpreter` to use")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`")
	flags.StringVar(&o.envFrom, "env-from", "", "`which` variables of your environment Python gets: usual or all (default usual)")
	flags.StringVar(&o.init, "init", "", "`file` of code to run before the first cell")
	flags.StringVar(&o.trace, "trace", "", "append each message to and from Python to this `file`, as JSON, on the machine that runs it")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringSliceVar(&o.preload, "preload", nil, "`modules` to import before the first cell, such as numpy,pandas")
	flags.DurationVar(&o.timeout, "timeout", 0, "interrupt a cell after this `time`")
	flags.DurationVar(&o.start, "start-timeout", 0, "`time` the interpreter may take to start (default 1m)")
	flags.DurationVar(&o.idle, "idle", 0, "`time` after which an unused session ends (default 1h)")
	flags.Var(&o.memory, "memory", "`bytes` of memory the interpreter may use, such as 512M")
	o.files.add(flags, "")
	flags.StringVar(&o.images, "images", "", "`directory` for images (default: a temporary one)")
	o.isolation.add(flags)
	o.workspace.add(flags)
	return cmd
}

func (a *app) py(ctx context.Context, o *pyOptions) error {
	for _, d := range []time.Duration{o.timeout, o.idle, o.start} {
		if d < 0 {
			return usageErrorf("times must not be negative")
		}
	}
	if o.json && (o.coded || o.file != "" || o.module != "") {
		return usageErrorf("with --json the cells come from stdin")
	}
	if err := a.checkEnvFrom(o.envFrom); err != nil {
		return err
	}
	terminal := isTerminal(a.stdin) && o.file == "" && o.module == "" && !o.coded && !o.json
	var code string
	if !terminal && !o.json {
		var err error
		if code, err = a.source(o); err != nil {
			return err
		}
	}
	o.once = !terminal && !o.json && o.session == ""
	return with(a.open, ctx, func(b spool.Backend) error {
		signals, stop := notify(interrupts...)
		defer stop()
		k, err := a.kernel(ctx, b, o, signals)
		if err != nil {
			return err
		}
		defer func() {
			k.leave(ctx)
			if o.workspace.kind != "" && k.own {
				a.mentionChanges(ctx, b, []spool.RunID{k.run.ID()})
			}
		}()
		if a.verbose {
			fmt.Fprintf(a.stderr, "spool: run %s\n", k.run.ID())
		}
		switch {
		case o.json:
			return a.pyJSON(ctx, k, signals)
		case terminal:
			return a.repl(ctx, k, o, signals)
		}
		return a.cell(ctx, k, o, code, signals)
	})
}

// checkModule refuses flags of py or box that contradict each other.
func checkModule(cmd *cobra.Command, coded bool) error {
	f := cmd.Flags().Lookup("module")
	switch {
	case f.Changed && coded:
		return usageErrorf("-c and -m exclude each other")
	case f.Changed && f.Value.String() == "":
		return usageErrorf("-m needs the name of a module")
	}
	return nil
}

// scriptArgs returns the script that the arguments of py or box name, and its
// sys.argv.
func scriptArgs(args []string, coded bool, module string) (file string, argv []string) {
	switch {
	case module != "":
		return "", append([]string{"-m"}, args...) // Python replaces the "-m"
	case coded:
		return "", append([]string{"-c"}, args...)
	case len(args) == 0:
		return "", []string{""}
	}
	return args[0], args
}

// source returns the code to run as one cell. A module and an archive have none:
// Python finds it.
func (a *app) source(o *pyOptions) (string, error) {
	var from io.Reader = a.stdin
	switch {
	case o.coded:
		if len(o.code) > maxSource {
			return "", usageErrorf("the code is longer than %d bytes", maxSource)
		}
		return o.code, nil
	case o.module != "":
		return "", nil
	case o.file != "" && o.file != "-":
		var err error
		if o.archive, err = isArchive(o.file); err != nil {
			return "", &exitError{exitUsage, fmt.Errorf("read the script: %w", err)}
		}
		if o.archive {
			return "", nil
		}
		f, err := os.Open(o.file)
		if err != nil {
			return "", &exitError{exitUsage, fmt.Errorf("read the script: %w", err)}
		}
		defer f.Close()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, maxSource+1))
	if err != nil {
		return "", fmt.Errorf("read the script: %w", err)
	}
	if len(b) > maxSource {
		return "", fmt.Errorf("the script is longer than %d bytes", maxSource)
	}
	return decodeSource(b)
}

// pySpec builds the spec of the run from the flags.
func (a *app) pySpec(o *pyOptions) (spool.Spec, error) {
	_, remote := a.remote()
	spec := spool.Spec{Engine: python.EngineKernel, Name: o.session, Cwd: o.cwd}
	var err error
	if spec.Env, err = overlay(o.env, nil); err != nil {
		return spec, err
	}
	if !remote {
		// A relative path is relative to this process.
		if spec.Cwd, err = filepath.Abs(o.cwd); err != nil {
			return spec, fmt.Errorf("find the working directory: %w", err)
		}
	}
	spec.Limits.OpenFiles = int(o.files)
	if spec.Isolation, err = o.isolation.isolation(); err != nil {
		return spec, err
	}
	if spec.Workspace, err = o.workspace.workspace(); err != nil {
		return spec, err
	}
	a.pyEnvironment(&spec, o.envFrom, remote)
	return spec, a.pyConfig(&spec, o, remote)
}
