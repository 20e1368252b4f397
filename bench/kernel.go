package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/python"
)

// The other kernels.
const (
	subjectJupyter = "ipykernel"
	subjectOMP     = "omp" // the runner of oh-my-pi
)

// The cells that print.
const (
	cellPrints = "for i in range(100000): print('line', i)"
	cellLines  = "s = 'x' * 99\nfor i in range(1000000): print(s)"
	cellWrites = "import sys\ns = 'x' * 1000000\nfor i in range(100): n = sys.stdout.write(s)"
	printBytes = 100_000_000 // output of the last two
)

// kernelTimeout limits one kernel measurement of one round.
const kernelTimeout = 5 * time.Minute

// measureKernel measures kernels in turns with ipykernel and the runner of
// oh-my-pi, all with the same Python.
func measureKernel(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, kernelTimeout)
	defer cancel()
	python, err := pytest.Cached()
	if err != nil {
		return err
	}
	// This process hosts kernels here, so it uses the default of the garbage
	// collector.
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	k := &kernelBench{b, python}
	if err := k.spool(ctx); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if err := k.jupyter(ctx); err != nil {
		return fmt.Errorf("ipykernel: %w", err)
	}
	if err := k.omp(ctx); err != nil {
		return fmt.Errorf("oh-my-pi: %w", err)
	}
	return nil
}

type kernelBench struct {
	*bench
	python string
}

// spool measures a host in this process.
func (k *kernelBench) spool(ctx context.Context) (err error) {
	h, err := host.Open(host.Options{Dir: filepath.Join(k.dir, "kernels"), Engines: map[string]host.NewEngine{
		python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for _, of := range []struct {
		metric string
		n      int
		cfg    python.KernelConfig
	}{
		{"kernel.ready", k.pick(24, 20), python.KernelConfig{Zygote: python.ZygoteWait, Preload: []string{"numpy"}}},
		{"kernel.cold", 6, python.KernelConfig{Zygote: python.ZygoteOff}},
	} {
		if err := k.ready(ctx, h, of.metric, of.n, of.cfg); err != nil {
			return err
		}
	}
	s, err := k.start(ctx, h, python.KernelConfig{Zygote: python.ZygoteWait})
	if err != nil {
		return err
	}
	if err := k.cells(ctx, s); err != nil {
		return err
	}
	if err := k.interrupts(ctx, s); err != nil {
		return err
	}
	if err := k.prints(ctx, s); err != nil {
		return err
	}
	if err := k.firstByte(ctx, s); err != nil {
		return err
	}
	if err := end(ctx, s); err != nil {
		return err
	}
	return k.memory(ctx, h)
}

func (k *kernelBench) start(ctx context.Context, h *host.Host, cfg python.KernelConfig) (*spool.Run, error) {
	cfg.Interpreter = k.python
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	return spool.Start(ctx, h, spool.Spec{Engine: python.EngineKernel, Cwd: k.dir, Config: raw})
}

func end(ctx context.Context, r *spool.Run) error {
	if err := r.Kill(ctx); err != nil {
		return err
	}
	_, err := r.Wait(ctx)
	return err
}

// ready measures the time until an interpreter accepts cells. The first start
// makes the zygote.
func (k *kernelBench) ready(ctx context.Context, h *host.Host, metric string, n int, cfg python.KernelConfig) error {
	for i := range n + 1 {
		began := time.Now()
		r, err := k.start(ctx, h, cfg)
		if err != nil {
			return err
		}
		if i > 0 {
			k.addTime(subjectSpool, metric, time.Since(began))
		}
		if err := end(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// runCell runs a cell and calls each for its output.
func runCell(ctx context.Context, r *spool.Run, code string, each func(b []byte)) error {
	t, err := r.Exec(ctx, "", spool.Cell{Code: code})
	if err != nil {
		return err
	}
	for e, err := range r.Stream(ctx, t.Seq()) {
		if err != nil {
			return err
		}
		if e.Turn != t.Seq() {
			continue
		}
		switch e.Kind {
		case spool.KindOutput:
			if each != nil {
				each(e.Bytes)
			}
		case spool.KindDone:
			var d spool.Done
			if err := json.Unmarshal(e.Data, &d); err != nil {
				return err
			}
			if d.Outcome != spool.TurnOK {
				return fmt.Errorf("cell %q: %s: %s", code, d.Outcome, d.Error)
			}
			return nil
		}
	}
	return errors.New("the cell did not end")
}

func (k *kernelBench) cells(ctx context.Context, r *spool.Run) error {
	for i := range k.pick(400, 200) {
		began := time.Now()
		if err := runCell(ctx, r, "1+1", nil); err != nil {
			return err
		}
		if i >= 20 {
			k.addTime(subjectSpool, "kernel.cell", time.Since(began))
		}
	}
	return nil
}

// interrupts measures the time from the interrupt of a busy loop to its end.
func (k *kernelBench) interrupts(ctx context.Context, r *spool.Run) error {
	for range k.pick(16, 10) {
		t, err := r.Exec(ctx, "", spool.Cell{Code: "print('x', flush=True)\nwhile True: pass"})
		if err != nil {
			return err
		}
		var began time.Time
		for e, err := range t.Events(ctx) {
			if err != nil {
				return err
			}
			if e.Kind == spool.KindOutput && began.IsZero() {
				began = time.Now()
				if err := t.Interrupt(ctx, 0); err != nil {
					return err
				}
			}
			if e.Kind == spool.KindDone {
				k.addTime(subjectSpool, "kernel.interrupt", time.Since(began))
			}
		}
	}
	return nil
}

// prints transfers output and measures the growth of this process's memory.
func (k *kernelBench) prints(ctx context.Context, r *spool.Run) error {
	for _, of := range []struct {
		metric, code string
		size         int
	}{{"kernel.prints", cellPrints, 0}, {"kernel.lines", cellLines, printBytes}, {"kernel.writes", cellWrites, printBytes}} {
		stop, growth := watchGrowth()
		size := 0
		began := time.Now()
		err := runCell(ctx, r, of.code, func(b []byte) { size += len(b) })
		took := time.Since(began)
		stop()
		if err != nil {
			return err
		}
		if of.size > 0 && size != of.size {
			return fmt.Errorf("%s: %d bytes arrived of %d", of.metric, size, of.size)
		}
		k.addTime(subjectSpool, of.metric, took)
		if of.size > 0 {
			k.add(subjectSpool, of.metric+".growth", growth())
		}
	}
	return nil
}

// watchGrowth samples the memory of this process until it is stopped, and
// returns the maximum growth.
func watchGrowth() (stop func(), growth func() float64) {
	before, _ := peers.RSS(os.Getpid())
	highest := before
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if now, err := peers.RSS(os.Getpid()); err == nil {
					highest = max(highest, now)
				}
			case <-done:
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }, func() float64 { return float64(highest - before) }
}

// firstByte measures the time from a print without line end or flush, whose
// output is its time, until the output can be read.
func (k *kernelBench) firstByte(ctx context.Context, r *spool.Run) error {
	for range 4 {
		var printed float64
		var seen time.Time
		err := runCell(ctx, r, "import time\nprint('%.6f' % time.time(), end='')\ntime.sleep(0.2)", func(b []byte) {
			if seen.IsZero() {
				seen = time.Now()
				printed, _ = strconv.ParseFloat(string(b), 64) // zero gives an absurd time
			}
		})
		if err != nil {
			return err
		}
		k.add(subjectSpool, "kernel.first", float64(seen.UnixMicro())/1e6-printed)
	}
	return nil
}

// memory keeps a hundred interpreters and adds up their memory.
func (k *kernelBench) memory(ctx context.Context, h *host.Host) error {
	cfg := python.KernelConfig{Zygote: python.ZygoteWait, Preload: []string{"numpy", "pandas"}}
	var runs []*spool.Run
	for range 100 {
		r, err := k.start(ctx, h, cfg)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	var own []float64
	for _, r := range runs {
		info, err := r.Info(ctx)
		if err != nil {
			return err
		}
		pss, err := pssOf(info.Pid)
		if err != nil {
			return err
		}
		own = append(own, pss)
	}
	total := 0.0
	children, err := childrenOf(os.Getpid())
	if err != nil {
		return err
	}
	for _, pid := range children { // includes the zygotes
		if pss, err := pssOf(pid); err == nil { // the process may have ended
			total += pss
		}
	}
	for _, pss := range own {
		k.add(subjectSpool, "kernel.pss", pss)
	}
	k.add(subjectSpool, "kernel.pss.100", total)
	for _, r := range runs {
		if err := end(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// pssOf returns the memory of a process, including its share of shared pages.
func pssOf(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kb); n == 1 {
			return kb * 1024, nil
		}
	}
	return 0, fmt.Errorf("process %d has no Pss", pid)
}

// childrenOf returns the children of a process.
func childrenOf(parent int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		_, after, _ := bytes.Cut(b, []byte(") "))
		var state string
		var ppid int
		if n, _ := fmt.Sscanf(string(after), "%s %d", &state, &ppid); n == 2 && ppid == parent {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
