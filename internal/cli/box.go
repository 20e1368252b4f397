package cli

import (
	"context"
	"encoding/json"
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
	"github.com/spool-run/spool/python"
)

// boxOptions are the flags of spool box.
type boxOptions struct {
	code   string
	coded  bool // code was given
	json   bool
	file   string
	args   []string
	fresh  bool
	env    []string
	cwd    string
	mounts []string

	backend, dist, wheels, isolation string
	packages, offer, allowNet        []string

	timeout, idle, askTimeout time.Duration
	memory, output, fsBytes   byteCount
	fsFiles, fuel             int64
	outputStop, metrics       bool
}

func (a *app) boxCommand() *cobra.Command {
	var o boxOptions
	cmd := &cobra.Command{
		Use:   "box [flags] [FILE [argument…]]",
		Short: "Run Python that nobody has to trust",
		Long: `Box runs Python in a sandbox: at a terminal it reads and runs one cell after
the other; with -c, a FILE, or input that is no terminal, it runs that.

What the code can reach is what the flags offer. There is no network, no file,
no process and no variable of this machine otherwise; its files are in memory
and gone when it ends. "spool box doctor" says what protects this machine.

The embedded back end needs nothing but spool. The pyodide one is chosen when a
package or a distribution is asked for; it needs Node and a directory with
Pyodide, in --dist or SPOOL_PYODIDE. The first use of either prepares it.

--mount HOST:GUEST shows a directory to the code, which may change it; with
":ro" it may not, and with ":overlay" its changes are kept apart and come with
the last events of the run. --allow-net HOST has spool answer the code's HTTP
requests to that host; "*.example.org" means all below it.

With --json, stdin has one request a line and stdout one event a line, as with
"spool py --json", and besides:
  {"stdin":"text\n"}                 standard input of the cell that was sent last
  {"close_stdin":true}               the end of it
  {"kill":true}                      kill the cell that runs
  {"answer":SEQ,"data":{…}}          answer what the code asks; see --offer
  {"answer":SEQ,"error":{"code":"ENOENT","message":"…"}}

Exit codes: that of the script; 1 if it raised; 124 if its time was up; 130 if
it was interrupted; 137 if it was killed or reached another limit; 125 if spool
failed.`,
		Example: `  spool box -c 'print("hello")'
  spool box --mount .:/work --timeout 5s script.py --size 3
  spool box --package numpy --dist ~/pyodide -c 'import numpy; print(numpy.arange(3))'
  echo 'print(input())' > t.py && echo hi | spool box t.py
  echo '{"id":"c1","code":"1+1"}' | spool box --json
  spool box doctor`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.coded = cmd.Flags().Changed("code")
			if len(args) > 0 && !o.coded {
				o.file = args[0]
			} else {
				args = append([]string{"-c"}, args...)
			}
			o.args = args
			return a.box(cmd.Context(), &o)
		},
	}
	cmd.AddCommand(a.boxDoctorCommand())
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the file is for the script
	flags.StringVarP(&o.code, "code", "c", "", "run this `code`")
	flags.BoolVar(&o.json, "json", false, "read requests and print events, one JSON object a line")
	flags.StringVar(&o.backend, "backend", "", "`back end`: auto, embedded or pyodide (default auto)")
	flags.StringVar(&o.dist, "dist", "", "`directory` of a Pyodide distribution")
	flags.StringVar(&o.wheels, "wheels", "", "`directory` with wheels that the distribution lacks")
	flags.StringSliceVar(&o.packages, "package", nil, "load these `packages`, such as numpy")
	flags.StringArrayVar(&o.mounts, "mount", nil, "show a directory: `HOST:GUEST[:ro|:overlay]`")
	flags.StringSliceVar(&o.allowNet, "allow-net", nil, "answer HTTP requests to this `host`")
	flags.StringSliceVar(&o.offer, "offer", nil, "with --json: `kinds` of ask that you answer, such as fs.read or fs.*")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`, of the guest (default "+python.SandboxCwd+")")
	flags.BoolVar(&o.fresh, "fresh", false, "a new interpreter for every cell")
	flags.DurationVar(&o.timeout, "timeout", 0, "stop a cell after this `time` (default 5m)")
	flags.DurationVar(&o.idle, "idle-timeout", 0, "stop a cell after this `time` without a sign of life")
	flags.DurationVar(&o.askTimeout, "ask-timeout", 0, "`time` for an answer to what the code asks (default 30s)")
	flags.Var(&o.memory, "memory", "`bytes` of memory, such as 128M (default 256M)")
	flags.Var(&o.output, "output-limit", "`bytes` of each stream of a cell to keep (default 1M)")
	flags.BoolVar(&o.outputStop, "output-stop", false, "stop a cell that writes more than that")
	flags.Var(&o.fsBytes, "fs-limit", "`bytes` of files it may write (default 64M)")
	flags.Int64Var(&o.fsFiles, "fs-files", 0, "`number` of files it may make (default 16384)")
	flags.Int64Var(&o.fuel, "fuel", 0, "`units` of work a cell may do, the same for the same code each time")
	flags.StringVar(&o.isolation, "isolation", "", "strict refuses unless all walls are up; none is the interpreter's own only (default the best there is)")
	flags.BoolVar(&o.metrics, "metrics", false, "say what preparing and starting took")
	return cmd
}

func (a *app) box(ctx context.Context, o *boxOptions) error {
	if o.timeout < 0 || o.idle < 0 || o.askTimeout < 0 || o.fsFiles < 0 || o.fuel < 0 {
		return usageErrorf("limits must not be negative")
	}
	switch {
	case o.json && (o.coded || o.file != ""):
		return usageErrorf("with --json the cells come from stdin")
	case len(o.offer) > 0 && !o.json:
		return usageErrorf("--offer is for --json, where you answer")
	}
	terminal := isTerminal(a.stdin) && o.file == "" && !o.coded && !o.json
	var code string
	if !terminal && !o.json {
		var err error
		if code, err = a.source(&pyOptions{code: o.code, coded: o.coded, file: o.file}); err != nil {
			return err
		}
	}
	spec, err := a.boxSpec(o, code, terminal)
	if err != nil {
		return err
	}
	return with(a.open, ctx, func(b spool.Backend) error {
		signals, stop := notify(interrupts...)
		defer stop()
		if err := tie(ctx, b, &spec); err != nil {
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
		if !o.json && isTerminal(a.stderr) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go a.showPreparation(ctx, k.run)
		}
		switch {
		case o.json:
			return a.pyJSON(ctx, k, signals)
		case terminal:
			return a.repl(ctx, k, &pyOptions{}, signals)
		}
		return a.boxScript(ctx, k, &spec, code, signals)
	})
}

// boxScript runs one script and exits as it did.
func (a *app) boxScript(ctx context.Context, k *interpreter, spec *spool.Spec, code string, signals <-chan os.Signal) error {
	r, err := k.send(ctx, "", spool.Cell{Code: code})
	if err != nil {
		return err
	}
	if spec.Stdin {
		// It waits in a read that nothing can end, and dies with the
		// process.
		go func() {
			t := &attachment{run: k.run, stdin: a.stdin, eof: true}
			_ = t.pump(ctx, false) // how the run ended is in its log
		}()
	}
	t := &turn{kernel: k, seq: r.Seq(), printer: &printer{stdout: a.stdout, stderr: a.stderr, blobs: k.run}}
	// What was said before the script came, about preparing it.
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

// showPreparation says on a terminal what is being prepared, until the code
// runs.
func (a *app) showPreparation(ctx context.Context, run *spool.Run) {
	shown := false
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == python.NoticePrepare {
			fmt.Fprintf(a.stderr, "\r\x1b[Kspool: %s …", n.Text)
			shown = true
			continue
		}
		if shown {
			fmt.Fprint(a.stderr, "\r\x1b[K")
			shown = false
		}
		if e.Turn != 0 {
			return
		}
	}
}

// boxSpec says what to start.
func (a *app) boxSpec(o *boxOptions, code string, terminal bool) (spool.Spec, error) {
	spec := spool.Spec{Engine: spool.EngineSandbox, Argv: o.args, Cwd: o.cwd, Env: make(map[string]string)}
	for _, v := range o.env {
		name, value, ok := strings.Cut(v, "=")
		if name == "" {
			return spec, usageErrorf("environment variable %q has no name", v)
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		spec.Env[name] = value
	}
	c := python.SandboxConfig{
		Backend: o.backend, Dist: o.dist, Wheels: o.wheels, Packages: o.packages, Isolation: python.Isolation(o.isolation),
		Fresh: o.fresh, Offer: o.offer, Hosts: o.allowNet, Metrics: o.metrics,
		Limits: python.SandboxLimits{
			WallMs: o.timeout.Milliseconds(), IdleMs: o.idle.Milliseconds(), AskMs: o.askTimeout.Milliseconds(), Fuel: o.fuel,
			MemoryBytes: int64(o.memory), OutputBytes: int64(o.output), OutputStop: o.outputStop, FSBytes: int64(o.fsBytes), FSFiles: o.fsFiles,
		},
	}
	if len(o.allowNet) > 0 {
		c.Offer = append(c.Offer, python.AskHTTP, python.AskDNS)
	}
	fromStdin := o.file == "-" || o.file == "" && !o.coded
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
			c.File = pathInGuest(o.cwd, filepath.Base(o.file))
			c.Files = []python.File{{Path: c.File, Text: code}}
		}
	}
	if err := a.boxMounts(o, &c); err != nil {
		return spec, err
	}
	var err error
	if spec.Config, err = json.Marshal(c); err != nil {
		return spec, fmt.Errorf("encode the configuration: %w", err)
	}
	return spec, nil
}

func pathInGuest(cwd, name string) string {
	if cwd == "" {
		cwd = python.SandboxCwd
	}
	return strings.TrimSuffix(cwd, "/") + "/" + name
}

// boxMounts adds what is named by paths of this machine, or of the server's.
func (a *app) boxMounts(o *boxOptions, c *python.SandboxConfig) error {
	_, remote := a.remote()
	local := func(path string) (string, error) {
		if path == "" || remote {
			return path, nil
		}
		return filepath.Abs(path) // what is relative here would be meaningless elsewhere
	}
	for _, m := range o.mounts {
		host, rest, ok := strings.Cut(m, ":")
		inside, mode, _ := strings.Cut(rest, ":")
		if !ok || host == "" || !strings.HasPrefix(inside, "/") {
			return usageErrorf("mount %q: it is HOST:GUEST, HOST:GUEST:ro or HOST:GUEST:overlay, with an absolute GUEST", m)
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
	if c.Dist == "" && !remote && (len(c.Packages) > 0 || c.Backend == python.BackendPyodide || c.Wheels != "") {
		c.Dist = os.Getenv("SPOOL_PYODIDE")
	}
	var err error
	if c.Dist, err = local(c.Dist); err != nil {
		return fmt.Errorf("find the distribution: %w", err)
	}
	if c.Wheels, err = local(c.Wheels); err != nil {
		return fmt.Errorf("find the wheels: %w", err)
	}
	return nil
}
