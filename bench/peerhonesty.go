package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
)

// honesty is the worst of all rounds of a scenario.
type honesty struct {
	Lost      float64 `json:"lost"` // part of the lines
	Repeated  float64 `json:"repeated"`
	Torn      int     `json:"torn"`
	Unknown   int     `json:"unknown"`   // rounds whose reader was not told how the command ended
	Survivors int     `json:"survivors"` // processes that were left
	Stalls    int     `json:"stalls"`    // rounds in which a reader held up the others or the command
	Rounds    int     `json:"rounds"`
}

// loss adds what one reader received.
func (h *honesty) loss(l peers.Loss, exit peers.Exit) {
	h.Lost = max(h.Lost, float64(l.Lost)/float64(l.Lines))
	h.Repeated = max(h.Repeated, float64(l.Repeated)/float64(l.Lines))
	h.Torn = max(h.Torn, l.Torn)
	if !exit.Known {
		h.Unknown++
	}
}

// honesty returns the results of a peer in a scenario and counts the round.
func (b *bench) honesty(p *measuredPeer, scenario string) *honesty {
	k := sampleKey{p.Name, scenario}
	if b.field.losses[k] == nil {
		b.field.losses[k] = &honesty{}
	}
	b.field.losses[k].Rounds++
	return b.field.losses[k]
}

// Numbered lines of the scenarios.
const (
	bursts     = 100
	burstLines = 1000
)

// numbers is a shell command that writes lines as fast as it can.
func numbers(lines int) string {
	return fmt.Sprintf("seq %d %d", peers.FirstLine, peers.FirstLine+lines-1)
}

// paced is a shell command that writes lines for one to two seconds.
var paced = fmt.Sprintf(`n=%d; while [ $n -lt %d ]; do seq $n $((n+%d)); n=$((n+%d)); sleep 0.01; done`,
	peers.FirstLine, peers.FirstLine+bursts*burstLines, burstLines-1, burstLines)

// peerCut cuts the connection of a reader again and again while a command writes.
func peerCut(ctx context.Context, b *bench, p *measuredPeer) error {
	check := peers.NewCheck(bursts * burstLines)
	j, err := p.Start(ctx, "sh", "-c", paced)
	if err != nil {
		return err
	}
	exit := followCut(ctx, j.Reader(true), check, 500*time.Millisecond, 100*time.Millisecond)
	b.honesty(p, "cut").loss(check.Loss(), exit)
	return nil
}

// followCut follows until the output is complete or the peer cannot continue. A
// connection is cut some time after output begins to arrive, or when none arrives
// for a while. Each lasts a little longer than the one before, so that a peer which
// begins anew each time comes to the end.
func followCut(ctx context.Context, r peers.Reader, check *peers.Check, silent, each time.Duration) peers.Exit {
	for failures := 0; failures < 10; silent, each = silent+silent/8, each+each/8 {
		connection, cut := context.WithCancel(ctx)
		timer := time.AfterFunc(silent, cut)
		arrives := false
		exit, err := r.Follow(connection, func(chunk []byte) {
			if !arrives {
				arrives = true
				timer.Reset(each)
			}
			check.Write(chunk)
		})
		wasCut := connection.Err() != nil
		timer.Stop()
		cut()
		switch {
		case err == nil:
			return exit
		case errors.Is(err, peers.ErrCannot) || ctx.Err() != nil:
			return peers.Exit{}
		case !wasCut:
			failures++
		}
		time.Sleep(20 * time.Millisecond)
	}
	return peers.Exit{}
}

// peerLate attaches a reader to a command that has ended.
func peerLate(ctx context.Context, b *bench, p *measuredPeer) error {
	const lines = 2_000_000
	mark := filepath.Join(p.dir, "late")
	j, err := p.Start(ctx, "sh", "-c", fmt.Sprintf(`%s; : > "$0"`, numbers(lines)), mark)
	if err != nil {
		return err
	}
	if err := exists(ctx, mark); err != nil {
		return fmt.Errorf("a command without a reader does not end: %w", err)
	}
	time.Sleep(200 * time.Millisecond) // until the server has noticed its end
	check := peers.NewCheck(lines)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	exit, err := j.Reader(false).Follow(limited, check.Write)
	if err != nil {
		exit = peers.Exit{}
	}
	b.honesty(p, "late").loss(check.Loss(), exit)
	return ctx.Err()
}

// exists waits for a file.
func exists(ctx context.Context, file string) error {
	for {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// heldUp is how long a reader gets nothing before it counts as held up by another
// one.
const heldUp = 5 * time.Second

// peerStalled has one reader stop reading beside one that reads.
func peerStalled(ctx context.Context, b *bench, p *measuredPeer) error {
	lines := b.pick(6_000_000, 3_000_000)
	gate := filepath.Join(p.dir, "stalled")
	j, err := p.Start(ctx, "sh", "-c", fmt.Sprintf(`while ! [ -e "$0" ]; do sleep 0.01; done; %s`, numbers(lines)), gate)
	if err != nil {
		return err
	}
	h := b.honesty(p, "stalled")
	slow, fast := peers.NewCheck(lines), peers.NewCheck(lines)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var stalled atomic.Bool
	slowExit := make(chan peers.Exit, 1)
	go func() {
		exit, err := j.Reader(false).Follow(ctx, func(chunk []byte) {
			stalled.Store(true)
			<-release
			slow.Write(chunk)
		})
		if err != nil {
			exit = peers.Exit{}
		}
		slowExit <- exit
	}()
	time.Sleep(500 * time.Millisecond) // until it is attached
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		return err
	}
	// If the reader gets nothing for a while, the slow one reads again.
	held := time.AfterFunc(heldUp, func() {
		if stalled.Load() {
			h.Stalls++
			free()
		}
	})
	began := time.Now()
	exit, err := j.Reader(true).Follow(ctx, func(chunk []byte) {
		held.Reset(heldUp)
		fast.Write(chunk)
	})
	if err != nil {
		exit = peers.Exit{}
	}
	took := time.Since(began)
	held.Stop()
	select {
	case <-release:
	default:
		b.addTime(p.Name, "peers.stalled", took)
	}
	free()
	h.loss(fast.Loss(), exit)
	select {
	case exit := <-slowExit:
		b.honesty(p, "slow").loss(slow.Loss(), exit)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// peerSetsid kills a command that has four children, three of them in sessions of
// their own.
func peerSetsid(ctx context.Context, b *bench, p *measuredPeer) error {
	arg := unique()
	j, err := p.Start(ctx, "sh", "-c", fmt.Sprintf(`sleep %[1]s & setsid sleep %[1]s & (setsid sleep %[1]s &)
setsid sleep %[1]s </dev/null >/dev/null 2>&1 & wait`, arg))
	if err != nil {
		return err
	}
	const kids = 4
	if n := await(ctx, arg, func(n int) bool { return n == kids }, 5*time.Second); n != kids {
		return fmt.Errorf("%d of %d children run", n, kids)
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = j.Kill(limited)
	h := b.honesty(p, "setsid")
	h.Survivors = max(h.Survivors, await(ctx, arg, func(n int) bool { return n == 0 }, 2*time.Second))
	if err != nil {
		h.Unknown++
	}
	peers.End(arg)
	return ctx.Err()
}

// peerKill kills the server with SIGKILL while a command writes, starts another
// one, and reads the rest. Then it has the new server kill a command of the old
// one.
func peerKill(ctx context.Context, b *bench, p *measuredPeer) error {
	arg := unique()
	silent, err := p.Start(ctx, "sleep", arg)
	if err != nil {
		return err
	}
	started := await(ctx, arg, func(n int) bool { return n == 1 }, 5*time.Second)
	check := peers.NewCheck(bursts * burstLines)
	mark := filepath.Join(p.dir, "writing")
	j, err := p.Start(ctx, "sh", "-c", `: > "$0"; `+paced, mark)
	if err != nil {
		return err
	}
	r := j.Reader(true)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		before, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, _ = r.Follow(before, check.Write) // it fails with the server
	}()
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	err = exists(waiting, mark) // a server that runs one command at a time never begins
	cancel()
	time.Sleep(500 * time.Millisecond)
	if err := errors.Join(p.Kill(), ctx.Err()); err != nil {
		return err
	}
	<-followed
	if err := p.Relaunch(ctx); err != nil {
		return fmt.Errorf("launch again: %w", err)
	}
	after, cancel := context.WithTimeout(ctx, 10*time.Second)
	exit := followCut(after, r, check, 10*time.Second, 10*time.Second)
	cancel()
	h := b.honesty(p, "kill")
	if err != nil {
		exit = peers.Exit{}
	}
	h.loss(check.Loss(), exit)
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = silent.Kill(limited) // whether it worked is seen below
	if started == 1 {
		h.Survivors = max(h.Survivors, await(ctx, arg, func(n int) bool { return n == 0 }, 2*time.Second))
	}
	peers.End(arg)
	return ctx.Err()
}
