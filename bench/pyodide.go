package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pyodidetest"
	"github.com/spool-run/spool/python"
)

// measurePyodide starts Pyodide sandboxes, in turns with Python without a
// sandbox and Pyodide as its documentation starts it.
func measurePyodide(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	s := &sandboxBench{bench: b}
	var err error
	if s.dist, err = pyodidetest.CachedDist(); err != nil {
		return err
	}
	if s.wheels, err = pyodidetest.CachedWheels(); err != nil {
		return err
	}
	if s.cache, err = os.MkdirTemp(s.dir, "cache-"); err != nil {
		return err
	}
	if err := s.native(ctx); err != nil {
		return fmt.Errorf("native Python: %w", err)
	}
	if err := s.node(ctx); err != nil {
		return fmt.Errorf("Pyodide in Node: %w", err)
	}
	if err := s.pyodide(ctx); err != nil {
		return fmt.Errorf("pyodide: %w", err)
	}
	return nil
}

// node loads Pyodide for every script.
func (s *sandboxBench) node(ctx context.Context) error {
	program := filepath.Join(s.dir, "plain.mjs")
	source := fmt.Sprintf(`import { loadPyodide } from %q;
const p = await loadPyodide({ indexURL: %q });
await p.runPythonAsync(process.argv[2]);
`, filepath.Join(s.dist, "pyodide.mjs"), s.dist+"/")
	if err := os.WriteFile(program, []byte(source), 0o600); err != nil {
		return err
	}
	for range s.pick(2, 1) {
		first, _, err := s.child(ctx, "node", program, codeHello)
		if err != nil {
			return err
		}
		s.addTime(subjectNode, "pyodide.first", first)
	}
	_, line, err := s.child(ctx, "node", program, codeCompute)
	if err != nil {
		return err
	}
	return s.addSeconds(subjectNode, "sandbox.compute", line)
}

// pyodide starts interpreters of Pyodide, without and with numpy: with the
// default number of spares, and on demand.
func (s *sandboxBench) pyodide(ctx context.Context) error {
	setups := []pyodideSetup{
		{"pyodide.first", codeHello, python.SandboxConfig{}},
		{"pyodide.numpy", codeNumpy, python.SandboxConfig{Packages: []string{"numpy"}, Wheels: s.wheels}},
	}
	for i := range setups {
		setups[i].config.Backend, setups[i].config.Dist = python.BackendPyodide, s.dist
	}
	return errors.Join(
		s.with(0, func(h *host.Host) error {
			for _, of := range setups {
				if err := s.pyodideDefault(ctx, h, of); err != nil {
					return err
				}
			}
			return nil
		}),
		s.with(-1, func(h *host.Host) error {
			for _, of := range setups {
				if err := s.pyodideFirst(ctx, h, of, of.metric+".demand"); err != nil {
					return err
				}
			}
			return nil
		}),
	)
}

// pyodideSetup is one kind of interpreter.
type pyodideSetup struct {
	metric, code string
	config       python.SandboxConfig
}

// with calls a function with a host that keeps this many spares.
func (s *sandboxBench) with(spares int, f func(*host.Host) error) error {
	h, err := s.open(spares)
	if err != nil {
		return err
	}
	return errors.Join(f(h), h.Close())
}

// pyodideFirst runs scripts one after the other, each in a new interpreter.
func (s *sandboxBench) pyodideFirst(ctx context.Context, h *host.Host, of pyodideSetup, metric string) error {
	of.config.Fresh = true
	r, err := s.start(ctx, h, of.config)
	if err != nil {
		return err
	}
	for i := range s.pick(40, 20) {
		took, _, err := first(ctx, r, of.code)
		if err != nil {
			return err
		}
		if i >= 3 {
			s.addTime(subjectSpool, metric, took)
		}
	}
	return end(ctx, r)
}

func (s *sandboxBench) pyodideDefault(ctx context.Context, h *host.Host, of pyodideSetup) error {
	if err := s.pyodideFirst(ctx, h, of, of.metric); err != nil {
		return err
	}
	if err := s.rate(ctx, h, of.metric+".rate", of.config, int64(s.pick(80, 40))); err != nil {
		return err
	}
	if err := s.live(ctx, h, of.metric+".memory", of.config, of.code, 20); err != nil {
		return err
	}
	if of.metric != "pyodide.first" {
		return nil
	}
	of.config.Fresh = true
	r, err := s.start(ctx, h, of.config)
	if err != nil {
		return err
	}
	if err := s.work(ctx, r, "pyodide"); err != nil {
		return err
	}
	return end(ctx, r)
}
