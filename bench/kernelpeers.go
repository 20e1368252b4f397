package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/testcache"
)

//go:embed jupyter.py
var jupyterScript string

// jupyter measures ipykernel through jupyter_client.
func (k *kernelBench) jupyter(ctx context.Context) error {
	plan, err := json.Marshal(map[string]any{
		"starts": 3, "cells": k.pick(120, 100), "interrupts": 8, "first": 3, "size": printBytes,
		"prints": map[string]string{"kernel.prints": cellPrints, "kernel.lines": cellLines, "kernel.writes": cellWrites},
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, k.python, "-c", jupyterScript, string(plan))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Dir = k.dir
	cmd.WaitDelay = time.Second
	b, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	var out map[string][]float64
	if err := json.Unmarshal(b, &out); err != nil {
		return fmt.Errorf("decode its results: %w", err)
	}
	for metric, values := range out {
		for _, v := range values {
			k.add(subjectJupyter, metric, v)
		}
	}
	return nil
}

// ompVersion is the pinned version of @oh-my-pi/pi-coding-agent.
const ompVersion = "14.9.9"

// findOMP returns the directory with the runner and the prelude of oh-my-pi,
// the only files of the package that are kept.
func findOMP() (string, error) {
	dir, err := testcache.Dir("omp-runner-" + ompVersion)
	if err != nil {
		return "", err
	}
	return dir, testcache.Install{Fill: fetchOMP}.Into(dir)
}

func fetchOMP(ctx context.Context, dir string) error {
	if _, err := testcache.Run(ctx, "npm", "pack", "--silent", "--pack-destination", dir, "@oh-my-pi/pi-coding-agent@"+ompVersion); err != nil {
		return err
	}
	packed, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return fmt.Errorf("npm pack left %d files", len(packed))
	}
	if err := unpack(packed[0], dir, "package/src/eval/py/runner.py", "package/src/eval/py/prelude.py"); err != nil {
		return err
	}
	return os.Remove(packed[0])
}

// unpack extracts some files of an archive.
func unpack(archive, dir string, names ...string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	left := len(names)
	for t := tar.NewReader(z); left > 0; {
		h, err := t.Next()
		if err != nil {
			return fmt.Errorf("read %s: %w", archive, err)
		}
		for _, name := range names {
			if h.Name != name {
				continue
			}
			b, err := io.ReadAll(io.LimitReader(t, 1<<20))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, path.Base(name)), b, 0o644); err != nil {
				return err
			}
			left--
		}
	}
	return nil
}

// ompKernel is the runner of oh-my-pi and its connection, as in its own host:
// one JSON object per line in each direction.
type ompKernel struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	count int
}

// startOMP starts the runner and waits until its first two requests are done,
// which is what its host calls ready.
func startOMP(ctx context.Context, python, dir string) (*ompKernel, error) {
	o := &ompKernel{cmd: exec.CommandContext(ctx, python, "-u", filepath.Join(dir, "runner.py"))}
	o.cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "PYTHONIOENCODING=utf-8")
	o.cmd.WaitDelay = time.Second
	var err error
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.out = bufio.NewReaderSize(out, 1<<20)
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	prelude, err := os.ReadFile(filepath.Join(dir, "prelude.py"))
	if err == nil {
		err = o.run("import os, sys", nil)
	}
	if err == nil {
		err = o.run(string(prelude), nil)
	}
	if err != nil {
		return nil, errors.Join(err, o.end())
	}
	return o, nil
}

// run runs a cell and calls each for its output.
func (o *ompKernel) run(code string, each func(text string)) error {
	o.count++
	id := fmt.Sprint("c", o.count)
	line, err := json.Marshal(map[string]any{"id": id, "code": code, "silent": false, "storeHistory": true})
	if err != nil {
		return err
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return err
	}
	for {
		line, err := o.out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the runner ended: %w", err)
		}
		var f struct{ Type, ID, Data string }
		if json.Unmarshal(line, &f) != nil || f.ID != id {
			continue
		}
		switch f.Type {
		case "stdout":
			if each != nil {
				each(f.Data)
			}
		case "done":
			return nil
		}
	}
}

func (o *ompKernel) end() error {
	_ = o.cmd.Process.Kill()
	var exit *exec.ExitError
	if err := o.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// omp measures the runner of oh-my-pi.
func (k *kernelBench) omp(ctx context.Context) error {
	dir, err := findOMP()
	if err != nil {
		return err
	}
	for range 6 {
		began := time.Now()
		o, err := startOMP(ctx, k.python, dir)
		if err != nil {
			return err
		}
		k.addTime(subjectOMP, "kernel.cold", time.Since(began))
		if err := o.end(); err != nil {
			return err
		}
	}
	o, err := startOMP(ctx, k.python, dir)
	if err != nil {
		return err
	}
	defer func() { _ = o.end() }()
	if pss, err := pssOf(o.cmd.Process.Pid); err == nil {
		k.add(subjectOMP, "kernel.pss", pss)
	}
	for range k.pick(120, 100) {
		began := time.Now()
		if err := o.run("1+1", nil); err != nil {
			return err
		}
		k.addTime(subjectOMP, "kernel.cell", time.Since(began))
	}
	for range 8 {
		var began time.Time
		err := o.run("print('x', flush=True)\nwhile True: pass", func(string) {
			if began.IsZero() {
				began = time.Now()
				_ = o.cmd.Process.Signal(syscall.SIGINT) // if it has ended, the read returns an error
			}
		})
		if err != nil {
			return err
		}
		k.addTime(subjectOMP, "kernel.interrupt", time.Since(began))
	}
	for metric, code := range map[string]string{"kernel.prints": cellPrints, "kernel.lines": cellLines, "kernel.writes": cellWrites} {
		began := time.Now()
		if err := o.run(code, nil); err != nil {
			return err
		}
		k.addTime(subjectOMP, metric, time.Since(began))
	}
	return nil
}
