package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/host"
)

// server is a running exec-server.
type server struct {
	cmd    *exec.Cmd
	url    string
	ready  time.Duration // from launch to the line with the URL
	stderr bytes.Buffer  // valid after the server has ended
	exited chan error
}

// launch starts `path exec-server` with dir as its home, so that it neither
// reads nor leaves files elsewhere, and waits until it listens.
func launch(ctx context.Context, path, dir string) (*server, error) {
	return launchServer(ctx, dir, "ws://", path, "exec-server", "--listen", "ws://127.0.0.1:0")
}

// launchServer starts a server that prints its URL, with this scheme, once it listens.
func launchServer(ctx context.Context, dir, scheme, path string, args ...string) (*server, error) {
	if err := os.MkdirAll(filepath.Join(dir, ".codex"), 0o700); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	s := &server{exited: make(chan error, 1)}
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), "HOME="+dir, "CODEX_HOME="+filepath.Join(dir, ".codex"),
		"XDG_STATE_HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	s.cmd.Stderr = &s.stderr
	s.cmd.WaitDelay = time.Second
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		first, _ := r.ReadString('\n') // an empty line is handled below
		s.ready = time.Since(began)
		line <- first
		_, err := io.Copy(io.Discard, r)
		s.exited <- errors.Join(err, s.cmd.Wait())
	}()

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	select {
	case first := <-line:
		s.url = strings.TrimSpace(first)
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("launch %s: %w", path, context.Cause(ctx)), s.stop())
	}
	if !strings.HasPrefix(s.url, scheme) {
		err := fmt.Errorf("launch %s: printed %q, not a URL that begins with %s", path, s.url, scheme)
		stopErr := s.stop()
		return nil, errors.Join(err, stopErr, errors.New(s.stderr.String()))
	}
	return s, nil
}

// large is the size of a run that is deleted between rounds.
const large = 1 << 20

// forget deletes Spool's logs of large runs, so that the page cache is free in
// the next round. Small logs stay: where many files were just deleted, some
// file systems are slow to create new ones. The other subjects write no logs.
func (s *server) forget() error {
	runs := filepath.Join(s.cmd.Dir, "spool", "runs")
	files, err := filepath.Glob(filepath.Join(runs, "*.seg"))
	filed, filedErr := filepath.Glob(filepath.Join(runs, "*", "*.seg"))
	err = errors.Join(err, filedErr)
	for _, f := range append(files, filed...) {
		if info, statErr := os.Stat(f); statErr != nil || info.Size() >= large {
			err = errors.Join(err, statErr, os.Remove(f))
		}
	}
	return err
}

// stop ends the server with SIGTERM, then SIGKILL. Its exit status is ignored.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop: %w", err)
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(5 * time.Second):
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop: %w", err)
	}
	<-s.exited
	return nil
}

// pids returns the server and the keepers it started, because their work
// belongs to the server.
func (s *server) pids() []int {
	pids := []int{s.cmd.Process.Pid}
	owners, err := host.Owners(filepath.Join(s.cmd.Dir, "spool"))
	if err != nil {
		return pids
	}
	for _, o := range owners {
		pids = append(pids, o.Pid)
	}
	return pids
}

// cpu returns the processor time of the server, without its children.
func (s *server) cpu() (time.Duration, error) {
	var total time.Duration
	for _, pid := range s.pids() {
		d, _, err := peers.CPU(pid)
		if err != nil {
			return 0, err
		}
		total += d
	}
	return total, nil
}

// memory returns the resident memory of the processes of the server in bytes, with
// pages that they share counted once.
func (s *server) memory() (int64, error) {
	var total int64
	for _, pid := range s.pids() {
		n, err := peers.Share(pid)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
