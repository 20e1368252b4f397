package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/store"
)

var (
	//go:embed sdk.py
	sdkPython string
	//go:embed sdk.mjs
	sdkNode string
)

const (
	// sdkEvents is the number of events that the clients follow.
	sdkEvents = 1_000_000
	// sdkOutput is the output that they read, in bytes.
	sdkOutput = 100_000_000
)

// sdkRows is the table of the clients for other languages.
var sdkRows = []row{
	{label: "Python: import", metric: "sdk.python.import", stat: median, unit: unitTime, goal: bound{atMost: 0.120}},
	{label: "Python: import, processor time", metric: "sdk.python.import.cpu", stat: median, unit: unitTime, goal: bound{atMost: 0.120}},
	{label: "Python: import, Spool.local(), the first output in a new process", metric: "sdk.python.fresh", stat: median, unit: unitTime, goal: bound{atMost: 0.160}},
	{label: "Python: Spool.local() to the first output", metric: "sdk.python.first", stat: median, unit: unitTime, goal: bound{atMost: 0.040}},
	{label: "Python: Spool.local() to the first output, no server", metric: "sdk.python.cold", stat: median, unit: unitTime, goal: bound{atMost: 0.150}},
	{label: "Python: events followed per second, of 1 M", metric: "sdk.python.events", stat: median, unit: unitCount, goal: bound{atLeast: 100_000}},
	{label: "Python: 100 MB of output", metric: "sdk.python.output", stat: median, unit: unitRate, goal: bound{atLeast: 200e6}},
	{label: "Node: local() to the first output", metric: "sdk.node.first", stat: median, unit: unitTime, goal: bound{atMost: 0.040}},
	{label: "Node: events followed per second, of 1 M", metric: "sdk.node.events", stat: median, unit: unitCount, goal: bound{atLeast: 300_000}},
}

// measureSDK measures the clients for Python and TypeScript with the real server.
func measureSDK(ctx context.Context, b *bench) (err error) {
	bin, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sp") // paths of sockets are short
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	state := filepath.Join(dir, "s")
	defer func() { err = errors.Join(err, endServers(state)) }()
	events := b.pick(sdkEvents, sdkEvents/10)
	if err := withStore(state, func(st *store.Store) error {
		return errors.Join(writeEvents(st, "events", events-1), writeLog(st, "output", bytes.Repeat([]byte("0123456789abcdef"), sdkOutput/16)))
	}); err != nil {
		return err
	}
	plan, err := json.Marshal(map[string]any{"state": state, "times": b.pick(3, 1), "events": events, "output": sdkOutput})
	if err != nil {
		return err
	}
	python, err := pytest.Environment([]string{"httpx==0.28.1"}, "httpx")
	if err != nil {
		return err
	}
	source := filepath.Join(dir, "python")
	if err := installPython(ctx, python, source); err != nil {
		return err
	}
	if err := b.script(ctx, bin, []string{"PYTHONPATH=" + source}, python, "-c", sdkPython, string(plan)); err != nil {
		return fmt.Errorf("the Python client: %w", err)
	}
	script, err := compileSDK(ctx, filepath.Join(dir, "typescript"))
	if err != nil {
		return err
	}
	if err := b.script(ctx, bin, nil, "node", script, string(plan)); err != nil {
		return fmt.Errorf("the TypeScript client: %w", err)
	}
	return nil
}

// installPython copies the Python client into a directory, with its byte code, as pip
// leaves it.
func installPython(ctx context.Context, python, dir string) error {
	if err := os.CopyFS(filepath.Join(dir, "spool"), os.DirFS("sdk/python/src/spool")); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-m", "compileall", "-q", dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the Python client: %w: %s", err, text)
	}
	return nil
}

// script runs a program that measures, and takes its results. The subject is that with
// whose name the metric begins, or Spool.
func (b *bench) script(ctx context.Context, bin string, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(append(os.Environ(), "SPOOL_PROGRAM="+bin), env...)
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	var out map[string][]float64
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("decode its results: %w", err)
	}
	for metric, values := range out {
		subject := subjectSpool
		for _, other := range []string{subjectAsciinema, subjectWetty, subjectJupyterServer} {
			if strings.HasPrefix(metric, other+".") {
				subject = other
			}
		}
		for _, v := range values {
			b.add(subject, metric, v)
		}
	}
	return nil
}

// writeEvents writes a finished run with many small events.
func writeEvents(st *store.Store, id spool.RunID, n int) error {
	now := time.Now()
	info := spool.Info{ID: id, Created: now, Engine: spool.EngineProcess, State: spool.StateRunning}
	j, err := st.Create(info)
	if err != nil {
		return err
	}
	for i := range n {
		e := spool.Event{Seq: spool.Seq(i + 1), Time: now, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: fmt.Appendf(nil, "line %d\n", i)}
		if err := j.Append(&e); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, now, &spool.Outcome{Kind: spool.Exited}
	return errors.Join(j.Append(&spool.Event{Seq: spool.Seq(n + 1), Time: now, Kind: spool.KindClosed}), j.Seal(info), j.Close())
}

// compileSDK compiles the TypeScript client, and returns the program that measures it.
func compileSDK(ctx context.Context, dir string) (string, error) {
	tsc, err := npmtest.Program{
		Name: "typescript-7.0.2", Packages: []string{"typescript@7.0.2", "@types/node@20.19.0"}, File: "node_modules/typescript/bin/tsc",
	}.Cached()
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS("sdk/typescript")); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "node", tsc, "--typeRoots", filepath.Join(filepath.Dir(tsc), "../../@types"))
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the TypeScript client: %w: %s", err, text)
	}
	script := filepath.Join(dir, "bench.mjs")
	return script, os.WriteFile(script, []byte(sdkNode), 0o600)
}

// endServers ends the servers of a state directory, which clients started.
func endServers(state string) error {
	err := exec.Command("pkill", "-TERM", "-f", "(serve --state|keeper-role -state) "+state+" ").Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // none runs
		return nil
	}
	return err
}
