package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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
	{label: "terminal: key to its echo, p50", metric: "console.echo", stat: median, unit: unitTime, goal: bound{atMost: 0.025}},
	{label: "terminal: key to its echo, p99", metric: "console.echo", stat: p99, unit: unitTime, goal: bound{atMost: 0.060}},
	{label: "terminal with yes: frames per second", metric: "console.frames", stat: median, unit: unitCount, goal: bound{atLeast: 30}},
	{label: "terminal with yes: Ctrl-C to the prompt", metric: "console.interrupt", stat: median, unit: unitTime, goal: bound{atMost: 0.300}},
}

// measureConsole measures the console in a real browser, beside the player of asciinema.
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
		Name: "console-bench-3", Packages: []string{"playwright-core@1.65.0", "asciinema-player@3.17.0", "axe-core@4.14.0"},
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
	cmd := exec.CommandContext(ctx, "node", "e2e/bench.mjs", fmt.Sprint(b.pick(consoleLog, consoleLog/8)))
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, &stderr, time.Second
	cmd.Env = append(os.Environ(), "SPOOL_PROGRAM="+bin, "SPOOL_STATE="+state, "CHROMIUM="+chromium,
		"ASCIINEMA="+filepath.Join(modules, "asciinema-player", "dist", "bundle"), fmt.Sprintf("TIMES=%d", b.pick(3, 1)))
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("measure in the browser: %w: %s", err, stderr.Bytes())
	}
	var out map[string][]float64
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("decode the results of the browser: %w", err)
	}
	for metric, values := range out {
		subject := subjectSpool
		if strings.HasPrefix(metric, subjectAsciinema) {
			subject = subjectAsciinema
		}
		for _, v := range values {
			b.add(subject, metric, v)
		}
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
