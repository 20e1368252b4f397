package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// decode reads the configuration of a spec and checks it.
func decode(spec *spool.Spec) (*python.SandboxConfig, error) {
	c := &python.SandboxConfig{}
	if len(spec.Config) > 0 {
		if err := strict.Unmarshal(spec.Config, c, "sandbox config"); err != nil {
			return nil, err
		}
	}
	return c, complete(c, spec)
}

// minJSHeap is the smallest heap in which Pyodide loads, with room to spare.
const minJSHeap = 32 << 20

// shown is a configuration without the content of its files.
func shown(c *python.SandboxConfig) *python.SandboxConfig {
	copied := *c
	copied.Files = nil
	for _, f := range c.Files {
		copied.Files = append(copied.Files, python.File{Path: f.Path, Mode: f.Mode, Symlink: f.Symlink})
	}
	return &copied
}

// needsPyodide reports whether a configuration has what only the pyodide back end
// has.
func needsPyodide(c *python.SandboxConfig) bool {
	return len(c.Packages) > 0 || c.Dist != "" || c.Wheels != "" || c.Node != "" || c.JSHeapBytes != 0
}

// complete checks the configuration and fills in what it leaves open.
func complete(c *python.SandboxConfig, spec *spool.Spec) error {
	switch c.Backend {
	case "", python.BackendAuto:
		c.Backend = python.BackendEmbedded
		if needsPyodide(c) {
			c.Backend = python.BackendPyodide
		}
	case python.BackendEmbedded:
		if needsPyodide(c) {
			return errors.New("packages, dist, wheels, node and js_heap_bytes need the pyodide back end")
		}
	case python.BackendPyodide:
	default:
		return fmt.Errorf("unknown back end %q: use auto, embedded or pyodide", c.Backend)
	}
	switch c.Isolation {
	case python.IsolateBest, python.IsolateStrict, python.IsolateNone:
	default:
		return fmt.Errorf("unknown isolation %q: use strict or none, or leave it out for the best available", c.Isolation)
	}
	if spec.TTY != nil {
		return errors.New("a sandbox has no terminal")
	}
	if p := spec.EnvPolicy; p != nil && (p.Inherit != "none" || len(p.Set) > 0) {
		return errors.New("a sandbox inherits no environment: set variables with env")
	}
	for name := range spec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(spec.Env[name], "\x00") {
			return fmt.Errorf("environment variable %q cannot be set", name)
		}
	}
	if c.JSHeapBytes < 0 || c.JSHeapBytes > 0 && c.JSHeapBytes < minJSHeap {
		return fmt.Errorf("js_heap_bytes: %d is less than %d", c.JSHeapBytes, minJSHeap)
	}
	for i, m := range c.Mounts {
		switch m.Mode {
		case "":
			c.Mounts[i].Mode = python.MountReadOnly
		case python.MountReadOnly, python.MountReadWrite, python.MountOverlay:
		default:
			return fmt.Errorf("mount %q: unknown mode %q: use ro, rw or overlay", m.Guest, m.Mode)
		}
		if !path.IsAbs(m.Guest) || path.Clean(m.Guest) == "/" {
			return fmt.Errorf("mount %q: the guest path must be absolute and not /", m.Guest)
		}
	}
	for _, o := range c.Offer {
		if o == "" || strings.Contains(strings.TrimSuffix(o, "*"), "*") {
			return fmt.Errorf("offer %q: use the kind of an ask, or a prefix followed by *", o)
		}
	}
	return completeLimits(&c.Limits, &spec.Limits)
}

// completeLimits checks the limits of a turn and fills in what they leave open.
func completeLimits(l *python.SandboxLimits, run *spool.Limits) error {
	for name, n := range map[string]int64{
		"fuel": l.Fuel, "memory_bytes": l.MemoryBytes, "output_bytes": l.OutputBytes, "open_files": int64(l.OpenFiles), "ask_ms": l.AskMs,
	} {
		if n < 0 {
			return fmt.Errorf("limit %s: %d is negative", name, n)
		}
	}
	if run.MemoryBytes != 0 || run.CPUs != 0 || run.OpenFiles != 0 {
		return errors.New("a sandbox has its own limits of memory, work and open files: set memory_bytes, fuel and open_files in its configuration")
	}
	l.WallMs = least(l.WallMs, run.Wall.Milliseconds())
	l.IdleMs = least(l.IdleMs, run.Idle.Milliseconds())
	l.OutputBytes = least(l.OutputBytes, run.OutputBytes)
	l.WallMs = cmp.Or(l.WallMs, DefaultWall.Milliseconds())
	l.OutputBytes = cmp.Or(l.OutputBytes, DefaultOutputBytes)
	l.AskMs = cmp.Or(l.AskMs, DefaultAskTimeout.Milliseconds())
	l.MemoryBytes = cmp.Or(l.MemoryBytes, DefaultMemory)
	l.OpenFiles = cmp.Or(l.OpenFiles, DefaultOpenFiles)
	if run.OutputPolicy == "stop" {
		l.OutputStop = true
	}
	if run.OutputPolicy == "block" {
		return errors.New("output policy block is not supported by a sandbox: use truncate or stop")
	}
	return nil
}

// least returns the smaller of two limits. Zero means no limit.
func least(a, b int64) int64 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case a < 0:
		return b
	}
	return min(a, b)
}

// wallLimit is the limit of a turn with its own one, zero if there is none.
func wallLimit(l *python.SandboxLimits, own int64) time.Duration {
	ms := l.WallMs
	if own > 0 {
		ms = least(ms, own)
	}
	return limits.Milliseconds(max(0, ms))
}

// offers reports whether the host program answers such asks.
func offers(c *python.SandboxConfig, kind string) bool {
	return slices.ContainsFunc(c.Offer, func(o string) bool {
		prefix, wild := strings.CutSuffix(o, "*")
		return o == kind || wild && strings.HasPrefix(kind, prefix)
	})
}
