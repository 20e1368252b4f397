package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
)

// peerBench are the peers of a bench, and what prevented measurements of them.
type peerBench struct {
	all    []*measuredPeer
	round  int
	losses map[sampleKey]*honesty // by peer and scenario
	notes  map[sampleKey]string   // why a peer has no figure of a task
}

// measuredPeer is a peer with its server in this round.
type measuredPeer struct {
	peers.Peer
	installed string
	absent    string // why it is not measured
	launched  bool   // once
	dir       string
	peers.Server
}

// peerTask is a part of a round. Each peer does it in turn.
type peerTask struct {
	name  string
	limit time.Duration
	do    func(ctx context.Context, b *bench, p *measuredPeer) error
}

var peerTasks = []peerTask{
	{"idle", 30 * time.Second, peerIdle},
	{"true", 20 * time.Second, peerTrue},
	{"starts", 30 * time.Second, peerStarts},
	{"lines", 20 * time.Second, peerLines},
	{"bulk", 20 * time.Second, peerBulk},
	{"readers.20", 20 * time.Second, peerReaders(20)},
	{"readers.100", 20 * time.Second, peerReaders(100)},
	{"readers.400", 30 * time.Second, peerReaders(400)},
	{"live", 30 * time.Second, peerLive},
	{"logs", 30 * time.Second, peerLogs},
	{"cut", 20 * time.Second, peerCut},
	{"late", 30 * time.Second, peerLate},
	{"stalled", 40 * time.Second, peerStalled},
	{"setsid", 20 * time.Second, peerSetsid},
	{"kill", 90 * time.Second, peerKill},
}

func peerTaskNames() []string {
	var names []string
	for _, t := range peerTasks {
		names = append(names, t.name)
	}
	return names
}

func checkPeerTasks(only string) error {
	if only == "" {
		return nil
	}
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(peerTaskNames(), name) && !slices.Contains(httpPartNames(), name) {
			return fmt.Errorf("unknown task %q; the tasks of peers are %s; those of http are %s", name, strings.Join(peerTaskNames(), ", "), strings.Join(httpPartNames(), ", "))
		}
	}
	return nil
}

// chosen reports whether a name is in a list of a flag, or the list is empty.
func chosen(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// measurePeers makes one round with all peers that can be installed. A task at
// which a peer failed is not repeated.
func measurePeers(ctx context.Context, b *bench) (err error) {
	if b.field == nil {
		b.field = installPeers(ctx, b.spool, b.peers)
	}
	b.field.round++
	defer func() {
		for _, p := range b.field.all {
			if p.Server != nil {
				err = errors.Join(err, p.Close())
				p.Server = nil
			}
			if p.dir != "" {
				err = errors.Join(err, os.RemoveAll(p.dir))
			}
		}
	}()
	for _, task := range peerTasks {
		if !chosen(b.tasks, task.name) {
			continue
		}
		for _, p := range b.field.order() {
			if _, failed := b.field.notes[sampleKey{p.Name, task.name}]; failed || p.absent != "" {
				continue // it would fail again
			}
			if err := b.peerTask(ctx, task, p); err != nil {
				return fmt.Errorf("%s: %s: %w", p.Name, task.name, err)
			}
		}
	}
	return nil
}

// order returns the peers in the order of this round. A server is still busy with what the
// task before left, and with an order that stays it would always be the same one that
// comes after it.
func (pb *peerBench) order() []*measuredPeer {
	order := slices.Clone(pb.all)
	random := rand.New(rand.NewPCG(uint64(pb.round), 0)) //nolint:gosec // the same each time
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// installPeers installs the peers. It notes why a peer cannot be installed.
func installPeers(ctx context.Context, spool, only string) *peerBench {
	pb := &peerBench{losses: make(map[sampleKey]*honesty), notes: make(map[sampleKey]string)}
	for i, peer := range peers.All(spool) {
		if i > 0 && only != "" && !slices.Contains(strings.Split(only, ","), peer.Name) {
			continue
		}
		p := &measuredPeer{Peer: peer}
		var err error
		if p.installed, err = p.Install(ctx); err != nil {
			p.absent = peers.Reason(err)
			fmt.Fprintf(os.Stderr, "%s is not measured: %s\n", p.Name, p.absent)
		}
		pb.all = append(pb.all, p)
	}
	return pb
}

// peerTask has a peer do a task. A peer that fails is noted and gets a new server,
// and one whose server never starts is not measured; only a failure of Spool is an
// error.
func (b *bench) peerTask(ctx context.Context, task peerTask, p *measuredPeer) error {
	began := time.Now()
	err := b.peerLaunch(ctx, p)
	if err != nil && !p.launched {
		p.absent = peers.Reason(err)
	}
	if err == nil {
		p.launched = true
		limited, cancel := context.WithTimeoutCause(ctx, task.limit, fmt.Errorf("not done after %v", task.limit))
		err = task.do(limited, b, p)
		if cause := context.Cause(limited); err != nil && cause != nil {
			err = cause
		}
		cancel()
	}
	fmt.Fprintf(os.Stderr, "  %d %-12s %-14s %5.1f s %v\n", b.field.round, task.name, p.Name, time.Since(began).Seconds(), err)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b.field.notes[sampleKey{p.Name, task.name}] = peers.Reason(err)
	if errors.Is(err, peers.ErrCannot) {
		return nil
	}
	if p.Server != nil {
		server := p.Server
		p.Server = nil
		if closeErr := server.Close(); closeErr != nil {
			return closeErr
		}
	}
	if p.Name == subjectSpool {
		return err
	}
	return nil
}

// peerLaunch starts the server of a peer in an empty directory, unless it runs.
func (b *bench) peerLaunch(ctx context.Context, p *measuredPeer) (err error) {
	if p.Server != nil {
		return nil
	}
	if p.dir, err = os.MkdirTemp(b.dir, "peer"); err != nil {
		return err
	}
	server, err := p.Launch(ctx, p.installed, filepath.Join(p.dir, "s"))
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	p.Server = server
	return nil
}

// cpu returns the processor time of a peer's processes and, with all, that of
// the commands which they have waited for.
func (p *measuredPeer) cpu(all bool) (total time.Duration, err error) {
	for _, pid := range p.Pids() {
		own, reaped, err := peers.CPU(pid)
		if err != nil {
			return 0, err
		}
		total += own
		if all {
			total += reaped
		}
	}
	return total, nil
}

// memory is what the processes of a server take together.
func (p *measuredPeer) memory() (total int64, err error) {
	for _, pid := range p.Pids() {
		n, err := peers.Share(pid)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
