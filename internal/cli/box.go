package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// boxOptions are the flags of spool box.
type boxOptions struct {
	code   string
	coded  bool // -c was given
	json   bool
	file   string
	module string
	args   []string
	fresh  bool
	// archive is set if file is a directory or a zip archive.
	archive bool
	env     []string
	cwd     string
	mounts  []string

	backend, dist, wheels, node, isolation string
	usualDist, usualNode                   string // of the environment or the configuration file
	packages, offer, allowNet              []string

	timeout, idle, askTimeout time.Duration
	memory, output, fsBytes   byteCount
	jsHeap                    byteCount
	fsFiles, fuel             int64
	outputStop, metrics       bool
	walls                     isolationFlags
}

func (a *app) boxCommand() *cobra.Command {
	var o boxOptions
	cmd := &cobra.Command{
		Use:   "box [flags] [FILE | -m MODULE] [argument…]",
		Short: "Run untrusted Python in a sandbox",
		Long: `Box runs Python in a sandbox. On a terminal it is a prompt: it reads a cell, runs
it, and repeats. With -c, -m, a FILE, or input that is not a terminal, it runs that.
The prompt is that of "spool py".

The code can reach only what the flags offer. Otherwise it has no network, and no
files, processes or variables of this machine; its own files are in memory and
vanish when it ends. "spool box doctor" prints what protects this machine.

The embedded back end needs only spool. Box uses the pyodide back end if you ask
for a package or a distribution; it needs Node and a directory with Pyodide, from
--dist or SPOOL_PYODIDE. Its Node is --node, SPOOL_NODE, or node in PATH. The
first use of a back end prepares it.

A FILE and -m MODULE run as "python FILE" and "python -m MODULE" would run them.
If a mount has the FILE, it is there with what is beside it; otherwise it is alone
in the working directory. FILE may be a zip archive with a __main__.py, or such a
directory of a mount. Flags of spool come before FILE or -m.

--mount HOST:GUEST gives the code a directory that it may change. With ":ro" the
directory is read-only; with ":overlay" changes go to a copy, and the last events
of the run contain them. --allow-net HOST lets the code send HTTP requests to that
host; "*.example.org" allows all its subdomains.

With --json, stdin has one request per line and stdout one event per line, as
with "spool py --json". Further requests:
  {"stdin":"text\n"}                 standard input of the cell sent last
  {"stdin_base64":"/w=="}            the same for bytes that are not text
  {"close_stdin":true}               end of that standard input
  {"kill":true}                      kill the running cell
  {"answer":SEQ,"data":{…}}          answer a question of the code; see --offer
  {"answer":SEQ,"error":{"code":"ENOENT","message":"…"}}

Exit codes: the exit code of the script; 1 if it raised; 2 if FILE cannot be read;
124 if it timed out; 130 if it was interrupted; 137 if it was killed or reached
another limit; 125 if spool failed.`,
		Example: `  spool box -c 'print("hello")'
  spool box --mount .:/code --timeout 5s script.py --size 3
  spool box --package numpy --dist ~/pyodide -c 'import numpy; print(numpy.arange(3))'
  echo 'print(input())' > t.py && echo hi | spool box t.py
  echo '{"id":"c1","code":"1+1"}' | spool box --json
  spool box doctor`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.coded = cmd.Flags().Changed("code")
			if err := checkModule(cmd, o.coded); err != nil {
				return err
			}
			o.file, o.args = scriptArgs(args, o.coded, o.module)
			// Only the flag asks for a distribution; the others say where one is.
			if !cmd.Flags().Changed("dist") {
				o.dist, o.usualDist = "", o.dist
			}
			if !cmd.Flags().Changed("node") {
				o.node, o.usualNode = "", o.node
			}
			return a.box(cmd.Context(), &o)
		},
	}
	cmd.AddCommand(a.boxDoctorCommand())
	flags := cmd.Flags()
	flags.SetInterspersed(false) // arguments after the file are the script's
	flags.StringVarP(&o.code, "code", "c", "", "run this `code`")
	flags.StringVarP(&o.module, "module", "m", "", "run this `module`, with all later arguments")
	flags.BoolVar(&o.json, "json", false, "read requests and print events, one JSON object per line")
	flags.StringVar(&o.backend, "backend", "", "`back end`: auto, embedded or pyodide (default auto)")
	flags.StringVar(&o.dist, "dist", "", "`directory` of a Pyodide distribution")
	flags.StringVar(&o.wheels, "wheels", "", "`directory` with extra wheels")
	flags.StringVar(&o.node, "node", "", "`path` of Node for the pyodide back end (default $SPOOL_NODE, or node in PATH)")
	flags.Var(&o.jsHeap, "js-heap", "`bytes` of the JavaScript heap of the pyodide back end, beside --memory (default 256M)")
	flags.StringSliceVar(&o.packages, "package", nil, "load these `packages`, such as numpy")
	flags.StringArrayVar(&o.mounts, "mount", nil, "mount a directory: `HOST:GUEST[:ro|:overlay]`")
	flags.StringSliceVar(&o.allowNet, "allow-net", nil, "allow HTTP requests to this `host`")
	flags.StringSliceVar(&o.offer, "offer", nil, "with --json: `kinds` of question that you answer, such as fs.read or fs.*")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory` inside the sandbox (default "+python.SandboxCwd+")")
	flags.BoolVar(&o.fresh, "fresh", false, "use a new interpreter for every cell")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop a cell after this `time` (default 5m)")
	flags.DurationVar(&o.idle, "idle-timeout", 0, "stop a cell after this `time` without output or other activity")
	flags.DurationVar(&o.askTimeout, "ask-timeout", 0, "`time` to wait for an answer to a question of the code (default 30s)")
	flags.Var(&o.memory, "memory", "`bytes` of memory, such as 128M (default 256M)")
	flags.Var(&o.output, "output-limit", "`bytes` of each stream of a cell to keep (default 1M)")
	flags.BoolVar(&o.outputStop, "output-stop", false, "stop a cell that exceeds --output-limit")
	flags.Var(&o.fsBytes, "fs-limit", "`bytes` of files the code may write (default 64M)")
	flags.Int64Var(&o.fsFiles, "fs-files", 0, "`number` of files the code may create (default 16384)")
	flags.Int64Var(&o.fuel, "fuel", 0, "deterministic instruction `budget` per cell")
	flags.StringVar(&o.isolation, "isolation", "", "strict: fail if any protection is missing; none: only the interpreter's own (default: the best available)")
	flags.StringVar(&o.walls.profile, "isolate", "", "require that the system isolates the interpreter: `profile` read-only, workspace-write, no-network, net-allow or strict")
	o.walls.addGuarantees(flags)
	flags.BoolVar(&o.metrics, "metrics", false, "print how long preparing and starting took")
	return cmd
}

func (a *app) box(ctx context.Context, o *boxOptions) error {
	if o.timeout < 0 || o.idle < 0 || o.askTimeout < 0 || o.fsFiles < 0 || o.fuel < 0 {
		return usageErrorf("limits must not be negative")
	}
	switch {
	case o.json && (o.coded || o.file != "" || o.module != ""):
		return usageErrorf("with --json the cells come from stdin")
	case len(o.offer) > 0 && !o.json:
		return usageErrorf("--offer needs --json")
	}
	terminal := isTerminal(a.stdin) && o.file == "" && o.module == "" && !o.coded && !o.json
	var code string
	if !terminal && !o.json {
		var err error
		p := &pyOptions{code: o.code, coded: o.coded, file: o.file, module: o.module}
		if code, err = a.source(p); err != nil {
			return err
		}
		o.archive = p.archive
	}
	cell := spool.Cell{Code: code, Module: o.module}
	spec, err := a.boxSpec(o, &cell, terminal)
	if err != nil {
		return err
	}
	return with(a.open, ctx, func(b spool.Backend) error {
		signals, stop := notify(interrupts...)
		defer stop()
		if err := lease(ctx, b, &spec); err != nil {
			return err
		}
		k := &interpreter{backend: b, own: true, serve: (&netServices{python.SandboxConfig{Hosts: o.allowNet}}).serve}
		if k.run, err = start(ctx, b, spec, signals); err != nil {
			return err
		}
		defer k.leave(ctx)
		if a.verbose {
			fmt.Fprintf(a.stderr, "spool: run %s\n", k.run.ID())
		}
		progress := &preparation{w: a.stderr, terminal: isTerminal(a.stderr)}
		if !o.json {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer progress.clear(true)
			go progress.follow(ctx, k.run)
		}
		switch {
		case o.json:
			return a.pyJSON(ctx, k, signals)
		case terminal:
			return a.repl(ctx, k, &pyOptions{}, signals)
		}
		return a.boxScript(ctx, k, &spec, cell, progress, signals)
	})
}

// boxScript runs one script and exits with its exit code.
func (a *app) boxScript(ctx context.Context, k *interpreter, spec *spool.Spec, cell spool.Cell, progress *preparation, signals <-chan os.Signal) error {
	r, err := k.send(ctx, "", cell)
	if err != nil {
		return err
	}
	if spec.Stdin {
		// The read cannot be cancelled; the goroutine ends with the process.
		go func() {
			t := &attachment{run: k.run, stdin: a.stdin, eof: true}
			_ = t.pump(ctx, false) // the log has the outcome
		}()
	}
	t := &turn{kernel: k, seq: r.Seq(), printer: &printer{
		stdout: progress.before(a.screen(a.stdout)), stderr: progress.before(a.screen(a.stderr)), blobs: k.run,
	}}
	// Print the events before the turn: notices of the preparation.
	before, err := k.run.Read(ctx, spool.Query{})
	if err != nil {
		return err
	}
	for _, e := range before.Events {
		if e.Seq < r.Seq() {
			if err := t.printer.print(ctx, &e); err != nil {
				return &writeError{err}
			}
		}
	}
	end, err := t.follow(ctx, signals)
	var broken *writeError
	if errors.As(err, &broken) {
		err = errors.Join(err, k.run.Kill(ctx))
		if errors.Is(err, syscall.EPIPE) {
			return exit(exitSignal + int(unix.SIGPIPE))
		}
	}
	if err != nil {
		return err
	}
	return exit(end.exitCode())
}

// boxSpec builds the spec of the run from the flags. It adds to the cell where the
// archive with its module is.
func (a *app) boxSpec(o *boxOptions, cell *spool.Cell, terminal bool) (spool.Spec, error) {
	spec := spool.Spec{Engine: python.EngineSandbox, Argv: o.args, Cwd: o.cwd}
	var err error
	if spec.Env, err = overlay(o.env, nil); err != nil {
		return spec, err
	}
	c := python.SandboxConfig{
		Backend: o.backend, Dist: o.dist, Wheels: o.wheels, Node: o.node, JSHeapBytes: int64(o.jsHeap),
		Packages: o.packages, Isolation: python.Isolation(o.isolation),
		Fresh: o.fresh, Offer: o.offer, Hosts: o.allowNet, Metrics: o.metrics,
		Limits: python.SandboxLimits{
			WallMs: o.timeout.Milliseconds(), IdleMs: o.idle.Milliseconds(), AskMs: o.askTimeout.Milliseconds(), Fuel: o.fuel,
			MemoryBytes: int64(o.memory), OutputBytes: int64(o.output), OutputStop: o.outputStop, FSBytes: int64(o.fsBytes), FSFiles: o.fsFiles,
		},
	}
	if len(o.allowNet) > 0 {
		c.Offer = append(c.Offer, python.AskHTTP, python.AskDNS)
	}
	if spec.Isolation, err = o.walls.isolation(); err != nil {
		return spec, err
	}
	if err := a.boxMounts(o, &c); err != nil {
		return spec, err
	}
	fromStdin := o.file == "-" || o.file == "" && !o.coded && o.module == ""
	switch {
	case terminal:
		c.Offer = append(c.Offer, spool.AskInput)
		spec.Argv = nil
	case o.json:
		spec.Stdin = true
		spec.Argv = nil
	default:
		c.Once = true
		spec.Stdin = !fromStdin && (!isTerminal(a.stdin) || foreground(a.stdin))
		if c.Script = !o.coded; o.file != "" && o.file != "-" {
			if err := a.boxFile(o, &c, cell.Code); err != nil {
				return spec, err
			}
			if o.archive {
				cell.Module, cell.File = mainModule, c.File
			}
		}
	}
	if spec.Config, err = json.Marshal(c); err != nil {
		return spec, fmt.Errorf("encode the configuration: %w", err)
	}
	return spec, nil
}

// scriptDir is where a script is in the sandbox if its working directory is a
// mount that does not have the script.
const scriptDir = "/script"

// boxFile says where the script is in the sandbox: where a mount has it, with what
// is beside it, or else in the working directory.
func (a *app) boxFile(o *boxOptions, c *python.SandboxConfig, code string) error {
	dir := cmp.Or(o.cwd, python.SandboxCwd)
	host, err := filepath.Abs(o.file)
	if err != nil {
		return fmt.Errorf("find the script: %w", err)
	}
	if real, err := filepath.EvalSymlinks(host); err == nil {
		host = real
	}
	_, remote := a.remote()
	best := -1
	for _, m := range c.Mounts {
		root := m.Host
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		rest, err := filepath.Rel(root, host)
		if inside := err == nil && filepath.IsLocal(rest); inside && !remote && len(root) > best {
			best = len(root)
			c.File = path.Join(m.Guest, filepath.ToSlash(rest))
		}
		if rest, err := filepath.Rel(m.Guest, dir); err == nil && filepath.IsLocal(rest) {
			dir = scriptDir // the mount is not to be written to
		}
	}
	if c.File == "" {
		c.File = path.Join(dir, filepath.Base(o.file))
		file := python.File{Path: c.File, Text: code}
		if o.archive {
			if file.Base64, err = readArchive(o.file); err != nil {
				return err
			}
		}
		c.Files = []python.File{file}
	}
	return nil
}

// readArchive reads a zip archive that no mount has.
func readArchive(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, &exitError{exitUsage, &hintedError{fmt.Errorf("the sandbox has no directory %s", path), fmt.Sprintf("mount it: --mount %s:/code", path)}}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err == nil && len(b) > maxSource {
		err = fmt.Errorf("it has more than %d bytes", maxSource)
	}
	if err != nil {
		return nil, fmt.Errorf("read the archive %s: %w", path, err)
	}
	return b, nil
}

// boxMounts adds mounts and other paths to the configuration. With --server
// they are paths of the server.
func (a *app) boxMounts(o *boxOptions, c *python.SandboxConfig) error {
	_, remote := a.remote()
	local := func(path string) (string, error) {
		if path == "" || remote {
			return path, nil
		}
		return filepath.Abs(path) // a relative path is relative to this process
	}
	for _, m := range o.mounts {
		host, rest, ok := strings.Cut(m, ":")
		inside, mode, _ := strings.Cut(rest, ":")
		if !ok || host == "" || !strings.HasPrefix(inside, "/") {
			return usageErrorf("mount %q: use HOST:GUEST, HOST:GUEST:ro or HOST:GUEST:overlay, with an absolute GUEST", m)
		}
		if mode == "" {
			mode = string(python.MountReadWrite)
		}
		host, err := local(host)
		if err != nil {
			return fmt.Errorf("mount %q: %w", m, err)
		}
		c.Mounts = append(c.Mounts, python.Mount{Host: host, Guest: inside, Mode: python.MountMode(mode)})
	}
	pyodide := len(c.Packages) > 0 || c.Backend == python.BackendPyodide || c.Wheels != "" || c.Node != "" || c.JSHeapBytes != 0
	if c.Dist == "" && !remote && pyodide {
		c.Dist = o.usualDist
	}
	if c.Node == "" && !remote && (pyodide || c.Dist != "") {
		c.Node = o.usualNode
	}
	var err error
	if strings.Contains(c.Node, "/") {
		if c.Node, err = local(c.Node); err != nil {
			return fmt.Errorf("find Node: %w", err)
		}
	}
	if c.Dist, err = local(c.Dist); err != nil {
		return fmt.Errorf("find the distribution: %w", err)
	}
	if c.Wheels, err = local(c.Wheels); err != nil {
		return fmt.Errorf("find the wheels: %w", err)
	}
	return nil
}
