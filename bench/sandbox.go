package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// The subjects beside sandboxes.
const (
	subjectNative = "python3 -I"      // no sandbox
	subjectNode   = "pyodide in node" // Pyodide as its documentation starts it
)

// sandboxRole is the first argument of a worker of the embedded back end.
const sandboxRole = "-sandbox-worker"

// sandboxTimeout limits the measurement of one round.
const sandboxTimeout = 5 * time.Minute

// The workloads, the same for all subjects. Each prints its own duration.
const (
	codeCompute = `
import time
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def best():
    t = time.perf_counter(); fib(20)
    d = {}
    for i in range(60000): d[str(i % 977)] = d.get(str(i % 977), 0) + i
    s = sum(x * x % 7 for x in range(60000))
    return time.perf_counter() - t
print(min(best() for _ in range(3)))
`
	codeStat = `
import os, time
os.stat("/workspace")
t = time.perf_counter()
for _ in range(5000): os.stat("/workspace")
print((time.perf_counter() - t) / 5000)
`
	codeHello = "print('hello')"
	codeNumpy = "import numpy\nprint(numpy.arange(3).sum())"
)

// measureEmbedded starts embedded sandboxes, and Python without a sandbox.
func measureEmbedded(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	s := &sandboxBench{bench: b}
	if err := s.native(ctx); err != nil {
		return fmt.Errorf("native Python: %w", err)
	}
	if err := s.embedded(ctx); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

type sandboxBench struct {
	*bench
	dist, wheels string
	cache        string // the preparation of this round
	python       string // the native interpreter
}

// open opens a host whose sandboxes keep their preparation in s.cache. Spares
// is the number of spare Pyodide processes, or zero for the default.
func (s *sandboxBench) open(spares int) (*host.Host, error) {
	return host.Open(host.Options{Engines: map[string]host.NewEngine{
		python.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{CacheDir: s.cache, Backends: map[string]func() (guest.Backend, error){
				python.BackendEmbedded: func() (guest.Backend, error) {
					return wasipy.New(wasipy.Config{Worker: func(args ...string) *exec.Cmd {
						return exec.Command(s.self, append([]string{sandboxRole}, args...)...)
					}}), nil
				},
				python.BackendPyodide: func() (guest.Backend, error) { return pyodide.New(pyodide.Options{Spares: spares}), nil },
			}})
		},
	}})
}

func (s *sandboxBench) start(ctx context.Context, h *host.Host, c python.SandboxConfig) (*spool.Run, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return spool.Start(ctx, h, spool.Spec{Engine: python.EngineSandbox, Stdin: true, Config: raw})
}

// native starts a Python process for every script.
func (s *sandboxBench) native(ctx context.Context) error {
	// Find the real interpreter: python3 may be a script of a version manager.
	var err error
	if _, s.python, err = s.child(ctx, "python3", "-I", "-c", "import sys; print(sys.executable)"); err != nil {
		return err
	}
	for range s.pick(16, 10) {
		first, _, err := s.child(ctx, s.python, "-I", "-c", codeHello)
		if err != nil {
			return err
		}
		s.addTime(subjectNative, "sandbox.first", first)
	}
	return nil
}

// child runs a program and returns the time to its first line, and the line.
func (s *sandboxBench) child(ctx context.Context, name string, args ...string) (time.Duration, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	first := time.Since(began)
	return first, strings.TrimSpace(line), errors.Join(readErr, cmd.Wait())
}

func (s *sandboxBench) addSeconds(subject, metric, line string) error {
	v, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return fmt.Errorf("%s: %q is not a duration", metric, line)
	}
	s.add(subject, metric, v)
	return nil
}

// first runs code in a sandbox and measures the time to its first byte.
func first(ctx context.Context, r *spool.Run, code string) (took time.Duration, text string, err error) {
	began := time.Now()
	err = runCell(ctx, r, code, func(b []byte) {
		if took == 0 {
			took = time.Since(began)
		}
		text += string(b)
	})
	return took, strings.TrimSpace(text), err
}

func (s *sandboxBench) embedded(ctx context.Context) (err error) {
	if s.cache, err = os.MkdirTemp(s.dir, "cache-"); err != nil {
		return err
	}
	h, err := s.open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	// The first use on a machine prepares everything.
	began := time.Now()
	r, err := s.start(ctx, h, python.SandboxConfig{Fresh: true})
	if err != nil {
		return err
	}
	if _, _, err := first(ctx, r, codeHello); err != nil {
		return err
	}
	s.addTime(subjectSpool, "sandbox.cold", time.Since(began))
	for i := range s.pick(120, 60) {
		took, _, err := first(ctx, r, codeHello)
		if err != nil {
			return err
		}
		if i >= 10 {
			s.addTime(subjectSpool, "sandbox.first", took)
		}
	}
	// In turns, because the speed of the machine varies.
	for range s.pick(2, 1) {
		_, line, err := s.child(ctx, s.python, "-I", "-c", codeCompute)
		if err != nil {
			return err
		}
		if err := s.addSeconds(subjectNative, "sandbox.compute", line); err != nil {
			return err
		}
		if err := s.work(ctx, r, "sandbox"); err != nil {
			return err
		}
	}
	if err := s.late(ctx, r); err != nil {
		return err
	}
	if err := s.rate(ctx, h, "sandbox.rate", python.SandboxConfig{}, int64(s.pick(800, 300))); err != nil {
		return err
	}
	return s.live(ctx, h, "sandbox.memory", python.SandboxConfig{}, codeHello, 1000)
}

// work measures computing and file calls in a sandbox.
func (s *sandboxBench) work(ctx context.Context, r *spool.Run, prefix string) error {
	for metric, code := range map[string]string{".compute": codeCompute, ".stat": codeStat} {
		_, line, err := first(ctx, r, code)
		if err != nil {
			return err
		}
		if err := s.addSeconds(subjectSpool, prefix+metric, line); err != nil {
			return err
		}
	}
	return nil
}

// late measures how long after its limit a busy loop is stopped.
func (s *sandboxBench) late(ctx context.Context, r *spool.Run) error {
	const limit = 100 * time.Millisecond
	for range s.pick(8, 5) {
		t, err := r.Exec(ctx, "", spool.Cell{Code: "while True:\n    try:\n        while True: pass\n    except BaseException: pass", TimeoutMs: limit.Milliseconds()})
		if err != nil {
			return err
		}
		began := time.Now()
		d, err := t.Wait(ctx)
		if err != nil {
			return err
		}
		if d.EndedBy != string(guest.Timeout) {
			return fmt.Errorf("a busy loop ended by %q: %s", d.EndedBy, d.Error)
		}
		s.addTime(subjectSpool, "sandbox.late", time.Since(began)-limit)
	}
	return nil
}

// rate runs scripts, each in a new interpreter, as fast as the machine can.
func (s *sandboxBench) rate(ctx context.Context, h *host.Host, metric string, c python.SandboxConfig, n int64) error {
	c.Fresh = true
	var done atomic.Int64
	errs := make(chan error, 2*runtime.NumCPU())
	var all sync.WaitGroup
	began := time.Now()
	for range cap(errs) {
		all.Go(func() {
			r, err := s.start(ctx, h, c)
			for err == nil && done.Add(1) <= n {
				_, _, err = first(ctx, r, codeHello)
			}
			if err == nil {
				err = end(ctx, r)
			}
			errs <- err
		})
	}
	all.Wait()
	s.add(subjectSpool, metric, float64(n)/time.Since(began).Seconds())
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// live keeps interpreters that have run a script, and adds up their memory.
func (s *sandboxBench) live(ctx context.Context, h *host.Host, metric string, c python.SandboxConfig, code string, n int) error {
	before, own, err := s.memoryOfAll()
	if err != nil {
		return err
	}
	var runs []*spool.Run
	for range n {
		r, err := s.start(ctx, h, c)
		if err != nil {
			return err
		}
		if _, _, err := first(ctx, r, code); err != nil {
			return err
		}
		runs = append(runs, r)
	}
	after, ownAfter, err := s.memoryOfAll()
	if err != nil {
		return err
	}
	s.add(subjectSpool, metric, (after-before)/float64(n))
	s.add(subjectSpool, metric+".host", (ownAfter-own)/float64(n))
	s.add(subjectSpool, metric+".live", float64(n))
	for _, r := range runs {
		if err := end(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// memoryOfAll returns the memory of all processes below this one, which hold
// the interpreters, and of this one, which holds their logs.
func (s *sandboxBench) memoryOfAll() (below, own float64, err error) {
	if own, err = pssOf(os.Getpid()); err != nil {
		return 0, 0, err
	}
	pids, err := childrenOf(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	for len(pids) > 0 {
		children, err := childrenOf(pids[0])
		if err != nil {
			return 0, 0, err
		}
		if pss, err := pssOf(pids[0]); err == nil { // the process may have ended
			below += pss
		}
		pids = append(pids[1:], children...)
	}
	return below, own, nil
}
