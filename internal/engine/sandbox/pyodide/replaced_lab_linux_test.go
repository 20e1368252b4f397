//go:build amd64 || arm64

package pyodide_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// lab is a host with a sandbox engine whose distribution is what a test makes
// of it: a directory with a pyodide.mjs of its own.
type lab struct {
	t    *testing.T
	ctx  context.Context
	host *host.Host
	dist string
}

func newLab(t *testing.T, module string) *lab {
	t.Helper()
	dist := t.TempDir()
	for name, content := range map[string]string{"pyodide.mjs": module, "pyodide-lock.json": "{\"packages\":[]}\n"} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return newLabOf(t, dist)
}

func newLabOf(t *testing.T, dist string) *lab {
	t.Helper()
	cache := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	h, err := host.Open(host.Options{Engines: map[string]host.NewEngine{
		python.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{
				CacheDir: cache,
				Backends: map[string]func() (guest.Backend, error){
					pyodide.Name: func() (guest.Backend, error) { return pyodide.New(pyodide.Options{}), nil },
				},
			})
		},
	}})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &lab{t, ctx, h, dist}
}

func (l *lab) tryStart(change func(*spool.Spec, *python.SandboxConfig)) (*spool.Run, error) {
	spec := spool.Spec{Engine: python.EngineSandbox, Stdin: true}
	c := python.SandboxConfig{Backend: pyodide.Name, Dist: l.dist}
	if change != nil {
		change(&spec, &c)
	}
	var err error
	if spec.Config, err = json.Marshal(c); err != nil {
		return nil, err
	}
	return spool.Start(l.ctx, l.host, spec)
}

func (l *lab) start(change func(*spool.Spec, *python.SandboxConfig)) *spool.Run {
	l.t.Helper()
	run, err := l.tryStart(change)
	if err != nil {
		l.t.Fatalf("start: %v", err)
	}
	return run
}

func (l *lab) exec(run *spool.Run, cell spool.Cell) *spool.Turn {
	l.t.Helper()
	turn, err := run.Exec(l.ctx, "", cell)
	if err != nil {
		l.t.Fatalf("exec: %v", err)
	}
	return turn
}

// ended is what came of a turn.
type ended struct {
	stdout, stderr string
	events         []spool.Event
	done           spool.Done
}

// follow collects the events of a turn until one is the last that is wanted,
// or ends it.
func (l *lab) follow(turn *spool.Turn, last func(*spool.Event, *ended) bool) ended {
	l.t.Helper()
	var out ended
	for e, err := range turn.Events(l.ctx) {
		if err != nil {
			l.t.Fatal(err)
		}
		out.events = append(out.events, e)
		if e.Kind == spool.KindOutput && e.Stream == spool.Stdout {
			out.stdout += string(e.Bytes)
		} else if e.Kind == spool.KindOutput {
			out.stderr += string(e.Bytes)
		} else if e.Kind == spool.KindDone {
			if err := json.Unmarshal(e.Data, &out.done); err != nil {
				l.t.Fatal(err)
			}
			return out
		}
		if last != nil && last(&e, &out) {
			return out
		}
	}
	l.t.Fatal("the log ends before the turn does")
	return out
}

func (l *lab) do(run *spool.Run, code string) ended {
	l.t.Helper()
	return l.follow(l.exec(run, spool.Cell{Code: code}), nil)
}
