//go:build amd64 || arm64

package pyodide

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/python"
)

// prepare finds out what is there, takes a snapshot if there is no valid one,
// and makes a group.
func (u *setup) prepare(ctx context.Context, progress func(guest.Progress)) (*group, guest.Prewarm, error) {
	began := time.Now()
	w, err := u.lookAround(ctx)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	prewarm := guest.Prewarm{Reason: guest.ReasonCached, CacheDir: w.cache, Dist: w.dist.dir}
	stamp, err := readStamp(w.cache, w.fingerprint)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	if stamp == nil {
		progress(guest.Progress{Step: "load Pyodide", Fraction: 0})
		if stamp, err = u.snapshot(ctx, w); err != nil {
			return nil, guest.Prewarm{}, err
		}
		prewarm.Executed, prewarm.Reason = true, guest.ReasonExecuted
	}
	progress(guest.Progress{Step: "start Pyodide", Fraction: 0.5})
	n, err := u.start(ctx, w, stamp)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	progress(guest.Progress{Step: "start Pyodide", Fraction: 1})
	if prewarm.Executed {
		prewarm.Duration = time.Since(began)
	}
	prewarm.Protections = n.up.Protections
	prewarm.Version = "Node " + strings.TrimPrefix(w.node.version, "v")
	if info := n.ready; info != nil && info.Kind == kindPyodide {
		prewarm.Version = fmt.Sprintf("Python %s, Pyodide %s, %s", info.Python, info.Version, prewarm.Version)
	}
	return n, prewarm, nil
}

// ware is what a setup is made of on this machine.
type ware struct {
	dist        *dist
	node        *node
	cache       string
	fingerprint string
	packages    []lockPackage
	packagesDir string
	heapMB      int // of JavaScript
}

func (u *setup) lookAround(ctx context.Context) (*ware, error) {
	o := u.backend.opts
	dir, err := findDist(cmp.Or(u.asked.Dist, o.Dist))
	if err != nil {
		return nil, err
	}
	w := &ware{}
	if w.dist, err = openDist(dir); err != nil {
		return nil, err
	}
	if w.node, err = findNode(ctx, cmp.Or(u.asked.Node, o.Node)); err != nil {
		return nil, err
	}
	w.heapMB = heapMB
	if u.asked.JSHeap > 0 {
		w.heapMB = int((u.asked.JSHeap + 1<<20 - 1) >> 20)
	}
	if w.cache, err = cacheDir(cmp.Or(u.asked.CacheDir, o.CacheDir)); err != nil {
		return nil, err
	}
	if w.fingerprint, err = w.dist.fingerprint(w.node.path); err != nil {
		return nil, err
	}
	need := []string{w.node.path, w.dist.dir}
	for name := range w.dist.files {
		need = append(need, filepath.Join(w.dist.dir, name))
	}
	if err := readable(need...); err != nil {
		return nil, err
	}
	if len(u.asked.Packages) == 0 {
		return w, nil
	}
	if w.packages, err = w.dist.lock.resolve(u.asked.Packages); err != nil {
		return nil, err
	}
	sources := []string{w.dist.dir}
	if u.asked.Wheels != "" {
		sources = []string{u.asked.Wheels, w.dist.dir}
	}
	w.packagesDir, err = stage(w.cache, w.packages, sources)
	return w, err
}

func cacheDir(given string) (string, error) {
	if given == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache directory: %w", err)
		}
		given = filepath.Join(cache, "spool")
	}
	dir := filepath.Join(given, cacheName)
	return dir, os.MkdirAll(dir, 0o755)
}

// runnerConfig is what the runner is told.
type runnerConfig struct {
	Mode     string   `json:"mode,omitempty"`
	Dist     string   `json:"dist"`
	Packages []string `json:"packages,omitempty"`
	Imports  []string `json:"imports,omitempty"`
	From     string   `json:"packages_dir,omitempty"`
	Snapshot bool     `json:"snapshot,omitempty"`
	Boot     string   `json:"boot"`
	Module   string   `json:"module"`
	Prelude  string   `json:"prelude"`
	Exercise string   `json:"exercise,omitempty"`
	Mark     byte     `json:"mark"`
}

// heapMB bounds JavaScript's own heap, which holds little: Python's is not in
// it.
const heapMB = 256

func (w *ware) plan(c runnerConfig, wall string, change func(*plan)) (plan, error) {
	c.Dist, c.Boot, c.Module, c.Prelude = guestDist, guest.Boot, guest.Module, preludeSource
	p := plan{
		Node: w.node.path, Libs: w.node.libs, Dist: w.dist.dir, HeapMB: w.heapMB, Fork: true, Wall: wall,
	}
	packages := guestPackages
	if !p.rooted() {
		p.Fork, c.Dist, packages = false, bareDist, barePackages
	}
	if c.Mode == "" && w.packagesDir != "" {
		p.Packages, c.From = w.packagesDir, packages
		for _, pk := range w.packages {
			c.Packages = append(c.Packages, pk.Name)
		}
	}
	p.Mark = c.Mark
	change(&p)
	if p.Fork && canFork {
		c.Exercise = exerciseSource
	}
	config, err := json.Marshal(c)
	p.Config = config
	return p, err
}

// snapshot loads the distribution once and keeps its memory, if it has such a
// thing.
func (u *setup) snapshot(ctx context.Context, w *ware) (*stamp, error) {
	file, err := os.CreateTemp(w.cache, "snapshot-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	n, err := u.startProtected(ctx, w, runnerConfig{Mode: "snapshot"}, func(p *plan) { p.Snapshot = snapshotWrite }, file)
	if err != nil {
		return nil, err
	}
	defer n.close()
	info := n.ready
	if info == nil { // it cannot fork here, so it has not loaded anything yet
		pr, err := n.begin(doStart, 0)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, u.backend.opts.LoadTime)
		defer cancel()
		if info, err = pr.ready(ctx); err != nil {
			return nil, unavailable("", fmt.Errorf("load %s: %w", w.dist.dir, err))
		}
		pr.end()
	}
	return writeStamp(w.cache, w.fingerprint, file, info.Kind)
}

// start makes the group that interpreters come from.
func (u *setup) start(ctx context.Context, w *ware, s *stamp) (*group, error) {
	c := runnerConfig{Mark: byte(time.Now().UnixNano()), Snapshot: s.Snapshot}
	for _, name := range u.asked.Packages {
		if pk := w.dist.lock.packages[normalise(name)]; len(pk.Imports) > 0 {
			c.Imports = append(c.Imports, pk.Imports[0])
		}
	}
	if s.Kind != kindPyodide && len(u.asked.Packages) > 0 {
		return nil, unavailable("", errors.New("this distribution is not Pyodide itself and takes no packages"))
	}
	var file *os.File
	if s.Snapshot {
		var err error
		if file, err = os.Open(snapshotPath(w.cache, w.fingerprint)); err != nil {
			return nil, fmt.Errorf("open snapshot: %w", err)
		}
		defer file.Close()
	}
	n, err := u.startProtected(ctx, w, c, func(p *plan) {
		p.Fork = p.Fork && s.Kind == kindPyodide && !u.backend.opts.NoFork
		if s.Snapshot {
			p.Snapshot = snapshotRead
		}
	}, file)
	if err != nil {
		return nil, err
	}
	if u.asked.Isolation == python.IsolateStrict && !slices.Contains(n.up.Protections, ProtectStrictFilter) {
		n.close()
		return nil, unavailable("without strict isolation the other protections still apply", fmt.Errorf("strict isolation: this machine lacks a protection: %s", ProtectStrictFilter))
	}
	return n, nil
}

// startProtected starts a group with the best protections that this machine
// offers. It fails if a protection that was asked for is missing.
func (u *setup) startProtected(ctx context.Context, w *ware, c runnerConfig, change func(*plan), snapshot *os.File) (*group, error) {
	proof, err := u.backend.prove(ctx, u.asked.Isolation == python.IsolateNone)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, unavailable("isolation none runs scripts that can read every file you can", err)
	case proof.Mechanism != isolate.Namespaces && u.asked.Isolation == python.IsolateStrict:
		return nil, unavailable("without strict isolation the other protections still apply", fmt.Errorf("strict isolation: this machine lacks a protection: %w", u.backend.noNamespaces(proof)))
	}
	p, err := w.plan(c, proof.Mechanism, change)
	if err != nil {
		return nil, err
	}
	n, err := u.backend.startGroup(ctx, p, snapshot)
	if err != nil && ctx.Err() == nil {
		err = unavailable("", fmt.Errorf("load %s: %w", w.dist.dir, err))
	}
	return n, err
}

// cacheName is our directory in a cache directory.
const cacheName = "pyodide-back-end"
