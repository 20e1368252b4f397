package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/servertest"
)

// clusterNode is a node of the cluster that is measured, with a client of it.
type clusterNode struct {
	*webServer
	dir    string
	client *client.Client
}

// measureCluster measures three control nodes on this machine: what a run of another
// node costs more than one of the node that is asked.
func measureCluster(ctx context.Context, b *bench) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	dir := filepath.Join(b.dir, "cluster")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := b.clusterInit(ctx); err != nil {
		return err
	}
	var alone resting
	err = b.withServe(ctx, filepath.Join(dir, "alone"), func(s *webServer) error {
		alone, err = b.aloneAtRest(ctx, s)
		return err
	})
	if err != nil {
		return err
	}
	err = b.withCluster(ctx, filepath.Join(dir, "full"), b.pick(clusterRuns, clusterRuns/100), b.clusterLists)
	if err != nil {
		return err
	}
	return b.withCluster(ctx, filepath.Join(dir, "new"), 0, func(ctx context.Context, nodes []*clusterNode) error {
		node, err := b.atRest(ctx, nodes[0].webServer)
		if err != nil {
			return err
		}
		b.add(subjectSpool, "cluster.rss.more", node.memory-alone.memory)
		b.add(subjectSpool, "cluster.idle.cpu.more", node.share-alone.share)
		for _, measure := range []func(context.Context, []*clusterNode) error{b.clusterLive, b.clusterCalls, b.clusterStarts, b.clusterStreams, b.clusterWorkers, b.clusterLoss} {
			if err := measure(ctx, nodes); err != nil {
				return err
			}
		}
		return nil
	})
}

// withCluster has something done with three new nodes that have so many finished runs in
// all.
func (b *bench) withCluster(ctx context.Context, dir string, runs int, do func(context.Context, []*clusterNode) error) (err error) {
	nodes, err := b.launchCluster(ctx, dir, runs)
	defer func() {
		for _, n := range nodes {
			_ = n.client.Close()
			err = errors.Join(err, n.stop())
		}
	}()
	if err != nil {
		return err
	}
	return do(ctx, nodes)
}

const (
	// clusterRuns is how many finished runs three nodes have that are asked for a list.
	clusterRuns = 100_000
	// clusterLiveRuns is how many live runs they have that renew their leases.
	clusterLiveRuns = 1_000
)

// launchCluster starts three control nodes, and waits until each of them takes runs.
func (b *bench) launchCluster(ctx context.Context, dir string, runs int) (nodes []*clusterNode, err error) {
	path, err := filepath.Abs(b.spool)
	if err != nil {
		return nil, err
	}
	base, err := servertest.FreePorts(9)
	if err != nil {
		return nil, err
	}
	var at []string
	for i := range 3 {
		at = append(at, fmt.Sprint("127.0.0.1:", base+3*i))
	}
	var token []byte
	for i, name := range []string{"a", "b", "c"} {
		home := filepath.Join(dir, name)
		args := []string{"--state", filepath.Join(home, "spool"), "cluster", "init", "--control", strings.Join(at, ",")}
		if i > 0 {
			args = append(args[:2], "cluster", "join")
		}
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdin = bytes.NewReader(token)
		out, err := cmd.Output()
		if err != nil {
			return nodes, fmt.Errorf("spool %q: %w", args, err)
		}
		if i == 0 {
			token = out
		}
	}
	for i, name := range []string{"a", "b", "c"} {
		home := filepath.Join(dir, name)
		if err := generateRuns(ctx, filepath.Join(home, "spool"), i*runs/3, (i+1)*runs/3); err != nil {
			return nodes, err
		}
		s, err := b.launchServe(ctx, home, "--cluster", "--node", name, "--cluster-listen", at[i], "--node-runs", fmt.Sprint(clusterLiveRuns))
		if err != nil {
			return nodes, err
		}
		c, err := s.dial(ctx)
		if err != nil {
			return nodes, errors.Join(err, s.stop())
		}
		nodes = append(nodes, &clusterNode{s, home, c})
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := runWhenUp(ctx, nodes[0].client, name); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// placed is a spec for a node.
func placed(node string, argv ...string) spool.Spec {
	return spool.Spec{Argv: argv, Env: map[string]string{"PATH": os.Getenv("PATH")}, Labels: map[string]string{"place.node": node}}
}

// runOn runs the shortest command on a node, from its start to its end.
func runOn(ctx context.Context, c *client.Client, node string) error {
	r, err := spool.Start(ctx, c, placed(node, shortest))
	if err != nil {
		return err
	}
	_, err = r.Wait(ctx)
	return err
}

// resting is what a server takes that has nothing to do.
type resting struct {
	memory float64 // in bytes
	share  float64 // of a processor
}

// aloneAtRest measures a server that is no part of a cluster, with a keeper.
func (b *bench) aloneAtRest(ctx context.Context, s *webServer) (resting, error) {
	c, err := s.dial(ctx)
	if err != nil {
		return resting{}, err
	}
	r, err := spool.Start(ctx, c, spool.Spec{Argv: []string{shortest}})
	if err == nil {
		_, err = r.Wait(ctx)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return resting{}, err
	}
	return b.atRest(ctx, s)
}

// atRest measures a server that has nothing to do.
func (b *bench) atRest(ctx context.Context, s *webServer) (r resting, err error) {
	if r.memory, err = b.restingMemory(ctx, s.memory); err != nil {
		return r, err
	}
	r.share, err = s.share(ctx)
	return r, err
}

// share measures how much of a processor a server takes while nobody asks it anything.
func (s *webServer) share(ctx context.Context) (float64, error) {
	if err := pause.For(ctx, quiet); err != nil { // until it has done what is left
		return 0, err
	}
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause.For(ctx, 3*quiet); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}

// clusterLists asks node a for the first page of the runs of all nodes.
func (b *bench) clusterLists(ctx context.Context, nodes []*clusterNode) error {
	const page = 50
	for range b.pick(50, 10) {
		began, got := time.Now(), 0
		for _, err := range nodes[0].client.List(ctx, spool.Filter{Limit: page}) {
			if err != nil {
				return err
			}
			got++
		}
		if got != page {
			return fmt.Errorf("a page has %d runs", got)
		}
		b.addTime(subjectSpool, "cluster.list", time.Since(began))
	}
	return nil
}

// clusterLive measures a node while there are many live runs on all of them, beside one
// without.
func (b *bench) clusterLive(ctx context.Context, nodes []*clusterNode) error {
	idle, err := nodes[0].share(ctx)
	if err != nil {
		return err
	}
	var runs []*spool.Run
	for i := range b.pick(clusterLiveRuns, clusterLiveRuns/20) {
		r, err := spool.Start(ctx, nodes[0].client, placed([]string{"a", "b", "c"}[i%3], "sleep", "1000"))
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	busy, err := nodes[0].share(ctx)
	b.add(subjectSpool, "cluster.live.cpu", busy-idle)
	for _, r := range runs {
		err = errors.Join(err, r.Kill(ctx))
	}
	return err
}

// more measures two things in turns, and notes how much longer the second takes.
func (b *bench) more(metric string, times int, own, other func() error) error {
	for range times {
		var took [2]time.Duration
		for i, do := range []func() error{own, other} {
			began := time.Now()
			if err := do(); err != nil {
				return fmt.Errorf("%s: %w", metric, err)
			}
			took[i] = time.Since(began)
		}
		b.addTime(subjectSpool, metric, took[1]-took[0])
	}
	return nil
}

// clusterCalls asks node a about a run of its own, and about one of node b.
func (b *bench) clusterCalls(ctx context.Context, nodes []*clusterNode) error {
	c := nodes[0].client
	var runs []*spool.Run
	for _, node := range []string{"a", "b"} {
		r, err := spool.Start(ctx, c, placed(node, "sleep", "1000"))
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	stat := func(r *spool.Run) func() error {
		return func() error { _, err := r.Info(ctx); return err }
	}
	signal := func(r *spool.Run) func() error {
		return func() error { return r.Signal(ctx, "SIGCONT") }
	}
	err := errors.Join(
		b.more("cluster.stat.more", b.pick(2000, 200), stat(runs[0]), stat(runs[1])),
		b.more("cluster.control.more", b.pick(1000, 100), signal(runs[0]), signal(runs[1])))
	for _, r := range runs {
		err = errors.Join(err, r.Kill(ctx))
	}
	return err
}

// clusterStarts starts runs on node a and on node b through node a.
func (b *bench) clusterStarts(ctx context.Context, nodes []*clusterNode) error {
	start := func(node string) func() error {
		return func() error { return runOn(ctx, nodes[0].client, node) }
	}
	return b.more("cluster.start.more", b.pick(300, 50), start("a"), start("b"))
}

// clusterStreams reads a log of node b directly, and through node a.
func (b *bench) clusterStreams(ctx context.Context, nodes []*clusterNode) error {
	size := b.pick(256<<20, 32<<20)
	r, err := spool.Start(ctx, nodes[1].client, placed("b", "head", "-c", fmt.Sprint(size), "/dev/zero"))
	if err != nil {
		return err
	}
	if _, err := r.Wait(ctx); err != nil {
		return err
	}
	for range b.pick(8, 3) {
		for _, from := range []struct {
			metric string
			client *client.Client
		}{{"cluster.stream.direct", nodes[1].client}, {"cluster.stream", nodes[0].client}} {
			began := time.Now()
			if err := readAll(ctx, spool.Attach(from.client, r.ID()), size); err != nil {
				return err
			}
			b.add(subjectSpool, from.metric, float64(size)/time.Since(began).Seconds())
		}
	}
	return nil
}

// clusterLoss ends everything of node c, and waits until node a says of its run that it
// does not know.
func (b *bench) clusterLoss(ctx context.Context, nodes []*clusterNode) error {
	r, err := spool.Start(ctx, nodes[0].client, placed("c", "sleep", "1000"))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(nodes[2].cmd.Process.Kill(), endServers(filepath.Join(nodes[2].dir, "spool"))); err != nil {
		return err
	}
	for {
		info, err := r.Info(ctx) // an error while nobody knows yet
		switch {
		case err == nil && info.Outcome != nil && info.Outcome.Kind == spool.Unknown:
			b.addTime(subjectSpool, "cluster.unknown", time.Since(began))
			return nil
		case err == nil && info.Outcome != nil:
			return fmt.Errorf("the run of a node that was killed ended: %v", info.Outcome)
		}
		if ended := pause.For(ctx, 10*time.Millisecond); ended != nil {
			return errors.Join(err, ended)
		}
	}
}
