package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/pause"
)

// clusterWorkers adds two workers to the control nodes: one whose runs another node
// copies, and one that no node can connect to.
func (b *bench) clusterWorkers(ctx context.Context, nodes []*clusterNode) (err error) {
	var workers []*clusterNode
	defer func() {
		for _, w := range workers {
			_ = w.client.Close()
			err = errors.Join(err, w.stop())
		}
	}()
	for _, args := range [][]string{{"copied", "--cluster-listen", "127.0.0.1:0", "--mirror", "1"}, {"hidden", "--cluster-advertise", "none"}} {
		w, err := b.launchWorker(ctx, nodes[0], args[0], args[1:]...)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	for _, w := range workers { // each has heard of the other
		for _, name := range []string{"a", "b", "copied", "hidden"} {
			if err := runWhenUp(ctx, w.client, name); err != nil {
				return err
			}
		}
	}
	c := workers[0].client
	if err := b.clusterRelay(ctx, c); err != nil {
		return err
	}
	return b.clusterMirror(ctx, c, filepath.Dir(nodes[0].dir))
}

// launchWorker has a new node join the cluster of another one, beside which its
// directory is.
func (b *bench) launchWorker(ctx context.Context, of *clusterNode, name string, more ...string) (*clusterNode, error) {
	path, err := filepath.Abs(b.spool)
	if err != nil {
		return nil, err
	}
	token, err := exec.CommandContext(ctx, path, "--state", filepath.Join(of.dir, "spool"), "cluster", "token").Output()
	if err != nil {
		return nil, fmt.Errorf("spool cluster token: %w", err)
	}
	home := filepath.Join(filepath.Dir(of.dir), name)
	join := exec.CommandContext(ctx, path, "--state", filepath.Join(home, "spool"), "cluster", "join")
	join.Stdin = bytes.NewReader(token)
	if out, err := join.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("spool cluster join: %w: %s", err, out)
	}
	s, err := b.launchServe(ctx, home, append([]string{"--cluster", "--node", name}, more...)...)
	if err != nil {
		return nil, err
	}
	c, err := s.dial(ctx)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return &clusterNode{s, home, c}, nil
}

// runWhenUp runs a command on a node that may have just been started.
func runWhenUp(ctx context.Context, c *client.Client, node string) error {
	for {
		err := runOn(ctx, c, node)
		if err == nil {
			return nil
		}
		if ended := pause.For(ctx, 100*time.Millisecond); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// clusterRelay reads through one worker a log of a control node, which it connects to,
// and one of a worker that it reaches through a relay, in turns.
func (b *bench) clusterRelay(ctx context.Context, c *client.Client) error {
	size := b.pick(256<<20, 32<<20)
	nodes := []string{"b", "hidden"}
	var runs []*spool.Run
	for _, node := range nodes {
		r, err := spool.Start(ctx, c, placed(node, "head", "-c", fmt.Sprint(size), "/dev/zero"))
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		runs = append(runs, r)
	}
	for range b.pick(8, 3) {
		for i, metric := range []string{"cluster.relay.without", "cluster.relay"} {
			began := time.Now()
			if err := readAll(ctx, runs[i], size); err != nil {
				return fmt.Errorf("read a log of node %s: %w", nodes[i], err)
			}
			b.add(subjectSpool, metric, float64(size)/time.Since(began).Seconds())
		}
	}
	return nil
}

// readAll reads a log that has so many bytes.
func readAll(ctx context.Context, r *spool.Run, size int) error {
	got := 0
	for e, err := range r.Stream(ctx, 0) {
		if err != nil {
			return err
		}
		got += len(e.Bytes)
	}
	if got != size {
		return fmt.Errorf("the log has %d bytes, want %d", got, size)
	}
	return nil
}

// clusterMirror measures how much later a line of output is in the copy of another node
// than its reader on the node of the run has it.
func (b *bench) clusterMirror(ctx context.Context, c *client.Client, dir string) error {
	spec := placed("copied", "cat")
	spec.Stdin = true
	r, err := spool.Start(ctx, c, spec)
	if err != nil {
		return err
	}
	lines := make(chan time.Time)
	rctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(lines)
		for _, err := range r.Events(rctx, 0) {
			if err != nil {
				return
			}
			select {
			case lines <- time.Now():
			case <-rctx.Done():
				return
			}
		}
	}()
	copied := ""
	for i := range b.pick(500, 50) {
		before, err := copySize(copied)
		if err != nil {
			return err
		}
		if _, err := r.Send(ctx, spool.Input{Kind: spool.InputStdin, Bytes: []byte("line\n")}); err != nil {
			return err
		}
		read, ok := <-lines
		if !ok {
			return errors.New("the reader of a run that is copied ended")
		}
		if i == 0 { // the copy is being made
			if copied, err = awaitCopy(ctx, r, dir); err != nil {
				return err
			}
			continue
		}
		written, err := awaitGrowth(ctx, copied, before)
		if err != nil {
			return err
		}
		b.addTime(subjectSpool, "cluster.mirror", max(0, written.Sub(read)))
	}
	return r.Kill(ctx)
}

// awaitCopy waits until a node has a complete copy of what a run has printed, and returns
// where it is.
func awaitCopy(ctx context.Context, r *spool.Run, dir string) (string, error) {
	for {
		info, err := r.Info(ctx)
		if err != nil {
			return "", err
		}
		if m := info.Mirror; m != nil && m.Node != "" && m.Last >= info.Last && info.Last > 0 {
			return filepath.Join(dir, m.Node, "spool", "cluster", "mirrors", string(r.ID())), nil
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// awaitGrowth waits until a copy is larger than it was, and returns when.
func awaitGrowth(ctx context.Context, copied string, before int64) (time.Time, error) {
	for ctx.Err() == nil {
		size, err := copySize(copied)
		if err != nil {
			return time.Time{}, err
		}
		if size > before {
			return time.Now(), nil
		}
		// Timers of the runtime are late by up to a millisecond.
		wait := unix.NsecToTimeval(int64(50 * time.Microsecond))
		if _, err := unix.Select(0, nil, nil, nil, &wait); err != nil && !errors.Is(err, unix.EINTR) {
			return time.Time{}, err
		}
	}
	return time.Time{}, context.Cause(ctx)
}

// copySize returns the size of the files of a copy, zero without a name.
func copySize(copied string) (size int64, err error) {
	if copied == "" {
		return 0, nil
	}
	err = filepath.WalkDir(copied, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if errors.Is(err, os.ErrNotExist) { // it was replaced
			return nil
		}
		if err == nil {
			size += fi.Size()
		}
		return err
	})
	return size, err
}
