package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/npmtest"
)

const (
	// consoleLog is the size of the log that the console opens, in MiB.
	consoleLog = 1024
	// subjectAsciinema is the player of asciinema, with the same output as a recording.
	subjectAsciinema = "asciinema"
)

// consoleRows is the table of the console.
var consoleRows = []row{
	{label: "page: painted", metric: "console.painted", stat: median, unit: unitTime, goal: bound{atMost: 0.250}},
	{label: "page: usable", metric: "console.usable", stat: median, unit: unitTime, goal: bound{atMost: 0.400}},
	{label: "1 GiB log: first rows", metric: "console.first_rows", stat: median, unit: unitTime, goal: bound{atMost: 0.400}, otherSubject: subjectAsciinema, otherMetric: "asciinema.load"},
	{label: "1 GiB log: exact scrollbar", metric: "console.scrollbar", stat: median, unit: unitTime, goal: bound{atMost: 2.5}},
	{label: "1 GiB log: jump to painted", metric: "console.jump", stat: median, unit: unitTime, goal: bound{atMost: 0.080}, otherSubject: subjectAsciinema, otherMetric: "asciinema.seek"},
	{label: "1 GiB log: longest task while scrolling", metric: "console.task", stat: median, unit: unitTime, goal: bound{atMost: 0.100}},
	{label: "1 GiB log: heap of the page", metric: "console.heap", stat: median, unit: unitBytes, goal: bound{atMost: 120e6}, otherSubject: subjectAsciinema, otherMetric: "asciinema.heap"},
	{label: "terminal: key to its echo, p50; wetty", metric: "console.echo", stat: median, unit: unitTime, goal: bound{atMost: 0.025}, otherSubject: subjectWetty, otherMetric: "wetty.echo"},
	{label: "terminal: key to its echo, p50; Jupyter", metric: "console.echo", stat: median, unit: unitTime, goal: bound{atMost: 0.025}, otherSubject: subjectJupyterServer, otherMetric: "jupyter.echo"},
	{label: "terminal: key to its echo, p99; wetty", metric: "console.echo", stat: p99, unit: unitTime, goal: bound{atMost: 0.060}, otherSubject: subjectWetty, otherMetric: "wetty.echo"},
	{label: "terminal: key to its echo, p99; Jupyter", metric: "console.echo", stat: p99, unit: unitTime, goal: bound{atMost: 0.060}, otherSubject: subjectJupyterServer, otherMetric: "jupyter.echo"},
	{label: "terminal with yes: frames per second; wetty", metric: "console.frames", stat: median, unit: unitCount, goal: bound{atLeast: 30}, otherSubject: subjectWetty, otherMetric: "wetty.frames"},
	{label: "terminal with yes: frames per second; Jupyter", metric: "console.frames", stat: median, unit: unitCount, goal: bound{atLeast: 30}, otherSubject: subjectJupyterServer, otherMetric: "jupyter.frames"},
	{label: "terminal with yes: Ctrl-C to the prompt; wetty", metric: "console.interrupt", stat: median, unit: unitTime, goal: bound{atMost: 0.300}, otherSubject: subjectWetty, otherMetric: "wetty.interrupt"},
	{label: "terminal with yes: Ctrl-C to the prompt; Jupyter", metric: "console.interrupt", stat: median, unit: unitTime, goal: bound{atMost: 0.300}, otherSubject: subjectJupyterServer, otherMetric: "jupyter.interrupt"},
}

// terminals names the programs of others, as far as they can be installed here.
func terminals(ctx context.Context) (env []string) {
	for _, p := range peers.Web() {
		name := map[string]string{subjectWetty: "WETTY", subjectJupyterServer: "JUPYTER"}[p.Name]
		if name == "" {
			continue
		}
		path, err := p.Install(ctx)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: without %s: %s\n", p.Name, peers.Reason(err))
			continue
		}
		if p.Name == subjectJupyterServer {
			path = filepath.Join(path, "bin", "jupyter-server")
		}
		env = append(env, name+"="+path)
	}
	return env
}

// measureConsole measures the console in a real browser, beside the player of asciinema
// and others that show terminals.
func measureConsole(ctx context.Context, b *bench) (err error) {
	bin, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	chromium, err := findBrowser()
	if err != nil {
		return err
	}
	module, err := npmtest.Program{
		Name: "console-bench-4", Packages: []string{"playwright-core@1.65.0", "asciinema-player@3.17.0", "axe-core@4.14.0", "@xterm/xterm@6.0.0"},
		File: "node_modules/playwright-core/cli.js",
	}.Cached()
	if err != nil {
		return err
	}
	modules := filepath.Dir(filepath.Dir(module))
	dir, err := os.MkdirTemp("", "sp") // paths of sockets are short
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state := filepath.Join(dir, "s")
	defer func() { err = errors.Join(err, endServers(state)) }()
	if err := errors.Join(os.CopyFS(filepath.Join(dir, "e2e"), os.DirFS("internal/web/e2e")), os.Symlink(modules, filepath.Join(dir, "node_modules"))); err != nil {
		return err
	}
	env := []string{
		"SPOOL_STATE=" + state, "CHROMIUM=" + chromium, "ASCIINEMA=" + filepath.Join(modules, "asciinema-player", "dist", "bundle"),
		"XTERM=" + filepath.Join(modules, "@xterm", "xterm", "lib", "xterm.js"),
		fmt.Sprintf("TIMES=%d", b.pick(3, 1)),
	}
	if err := b.script(ctx, bin, append(env, terminals(ctx)...), "node", filepath.Join(dir, "e2e", "bench.mjs"), fmt.Sprint(b.pick(consoleLog, consoleLog/8))); err != nil {
		return fmt.Errorf("measure in the browser: %w", err)
	}
	return nil
}

// findBrowser returns the Chromium of this machine.
func findBrowser() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium")
}
