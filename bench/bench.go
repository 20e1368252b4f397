package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The names of the measured subjects.
const (
	subjectSpool = "spool"
	subjectCodex = "codex"
	subjectFloor = "floor" // the operating system without a server
)

// subject is a measured server. One server process serves all its measurements
// in sequence, so that its memory at the end shows what the load left behind.
type subject struct {
	name string
	path string
	dir  string
	*server
}

// restart replaces the server after a failure or when a clean one is needed.
func (s *subject) restart(ctx context.Context) error {
	if err := s.shutdown(); err != nil {
		return err
	}
	srv, err := launch(ctx, s.path, s.dir)
	s.server = srv
	return err
}

func (s *subject) shutdown() error {
	if s.server == nil {
		return nil
	}
	err := s.stop()
	s.server = nil
	return err
}

// bench holds the servers and the samples.
type bench struct {
	options
	samples
	dir      string
	self     string // this program, which is also the chatty process
	version  string // of codex
	subjects []*subject
	field    *peerBench  // nil until its first round
	web      *httpBench  // nil until its first round
	load     float64     // before the measurements
	began    machineTime // the same
}

// measurement is one thing to measure. A measurement of servers is repeated for
// each of them in turn; a measurement of Spool's packages has no subject.
type measurement struct {
	name   string
	rounds int    // maximum number of rounds, a quarter of it with -quick; zero means no maximum
	only   string // the only subject, if not all
	server func(ctx context.Context, b *bench, s *subject) error
	alone  func(ctx context.Context, b *bench) error
}

// measurements lists all measurements in order. Memory comes last because it
// measures what the others left behind.
var measurements = []measurement{
	{name: "ready", server: measureReady},
	{name: "latency", server: measureLatency},
	{name: "starts", server: measureStarts},
	{name: "bulk", server: measureBulk},
	{name: "crowd", rounds: 5, server: measureCrowd},
	{name: "chatty", server: measureChatty},
	{name: "client", only: subjectSpool, server: measureClient},
	{name: "stalled", rounds: 5, server: measureStalled},
	{name: "resident", rounds: 1, only: subjectSpool, server: measureResident},
	{name: "memory", rounds: 1, server: measureMemory},
	{name: "local", alone: measureLocal},
	{name: "keeper", alone: measureKeeper, rounds: 5},
	{name: "kernel", alone: measureKernel, rounds: 5},
	{name: "embedded", alone: measureEmbedded, rounds: 5},
	{name: "pyodide", alone: measurePyodide, rounds: 5},
	{name: "agent", alone: measureAgent, rounds: 5},
	{name: "isolation", alone: measureIsolation},
	{name: "journal", alone: measureJournal},
	{name: "find", rounds: 5, alone: measureFind},
	{name: "readers", alone: measureReaders},
	{name: "driver", rounds: 1, alone: measureDriver},
	{name: "growth", rounds: 1, alone: measureGrowth},
	{name: "sdk", rounds: 3, alone: measureSDK},
	{name: "console", rounds: 1, alone: measureConsole},
	{name: "http", rounds: 3, alone: measureHTTP},
	{name: "cluster", rounds: 1, alone: measureCluster},
	{name: "peers", alone: measurePeers},
}

func measurementNames() []string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	return names
}

func chooseMeasurements(only string) ([]measurement, error) {
	if only == "" {
		return measurements, nil
	}
	want := strings.Split(only, ",")
	for _, name := range want {
		if !slices.Contains(measurementNames(), name) {
			return nil, fmt.Errorf("unknown measurement %q; the measurements are %s", name, strings.Join(measurementNames(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(measurements), func(m measurement) bool {
		return !slices.Contains(want, m.name)
	}), nil
}

func newBench(o options) (*bench, error) {
	b := &bench{options: o, samples: make(samples), load: loadAverage(), began: readMachineTime()}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	b.dir, err = makeScratch()
	return b, err
}

// launchAll starts the servers and measures their idle memory.
func (b *bench) launchAll(ctx context.Context) error {
	spool, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	var codex string
	if codex, b.version, err = findCodex(ctx, b.codex); err != nil {
		return err
	}
	b.subjects = []*subject{
		{name: subjectSpool, path: spool, dir: filepath.Join(b.dir, "spool")},
		{name: subjectCodex, path: codex, dir: filepath.Join(b.dir, "codex")},
	}
	for _, s := range b.subjects {
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	time.Sleep(300 * time.Millisecond) // until the servers are idle
	for _, s := range b.subjects {
		rss, err := s.memory()
		if err != nil {
			return err
		}
		b.add(s.name, "rss.idle", float64(rss))
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	for _, s := range b.subjects {
		errs = append(errs, s.shutdown())
	}
	if b.web != nil {
		errs = append(errs, b.web.close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// pick returns full, or small with -quick.
func (b *bench) pick(full, small int) int {
	if b.quick {
		return small
	}
	return full
}

// measure makes the measurements. It skips the rest of a measurement that fails
// and continues with the next.
func (b *bench) measure(ctx context.Context, chosen []measurement) error {
	if slices.ContainsFunc(chosen, func(m measurement) bool { return m.server != nil }) {
		if err := b.launchAll(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, m := range chosen {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%-8s", m.name)
		if err := b.measureOne(ctx, m); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			fmt.Fprintf(os.Stderr, " %v\n", err)
		} else {
			fmt.Fprintf(os.Stderr, " %.1f s\n", time.Since(began).Seconds())
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (b *bench) measureOne(ctx context.Context, m measurement) error {
	rounds := b.rounds
	if m.rounds > 0 {
		rounds = min(rounds, b.pick(m.rounds, max(1, m.rounds/4)))
	}
	for range rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		if m.alone != nil {
			if err := m.alone(ctx, b); err != nil {
				return err
			}
			continue
		}
		for _, s := range b.subjects {
			if m.only != "" && m.only != s.name {
				continue
			}
			if err := m.server(ctx, b, s); err != nil {
				// A server that failed may be stuck.
				return errors.Join(fmt.Errorf("%s: %w", s.name, err), s.restart(ctx))
			}
		}
	}
	return nil
}
