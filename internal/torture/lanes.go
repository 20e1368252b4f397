package torture

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/pause"
)

// connectionLane applies the schedule to one connection until it reached the
// goal of cuts.
func (t *trial) connectionLane(ctx context.Context, lane int, d driver, quota int) {
	wire, seen := d.proxy(), 0
	for step := range Schedule(t.opts.Seed, lane, t.opts.Faults) {
		if quota == 0 {
			return
		}
		// Wait until the client has reconnected; otherwise there is no
		// connection to cut.
		if !step.Early && !d.settled(ctx) {
			return
		}
		if wire.Open() == 0 {
			if wire.WaitCount(ctx, seen+1) != nil {
				return
			}
		}
		if pause.For(ctx, step.Pause) != nil {
			return
		}
		cut := false
		switch step.Fault {
		case Cut:
			cut = t.cut(ctx, wire, step)
		case Stall:
			wire.Stall(step.Dir)
			_ = pause.For(ctx, step.Hold)
			if step.Cut {
				cut = wire.Cut() > 0
			}
			wire.Flow(step.Dir)
		}
		seen = wire.Count()
		if cut {
			t.disconnects.Add(1)
			quota--
		}
		t.countStep(step, cut || step.Fault == Stall)
		t.logf("%s: %s", d.label(), step)
	}
}

// cut resets a connection and reports whether there was one.
func (t *trial) cut(ctx context.Context, wire *netcut.Proxy, step Step) bool {
	if step.Bytes == 0 {
		return wire.Cut() > 0
	}
	timer := time.NewTimer(step.Hold)
	defer timer.Stop()
	select {
	case <-wire.CutAfter(step.Dir, step.Bytes):
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	wire.CutAfter(step.Dir, 1<<62) // replaces the cut whose bytes did not arrive
	return wire.Cut() > 0
}

// countStep counts a step.
func (t *trial) countStep(step Step, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done {
		t.faults[step.Fault]++
	} else {
		t.skipped[step.Fault]++
	}
}

// serverLane applies the schedule to the server, its machine and its workers.
func (t *trial) serverLane(ctx context.Context) {
	for step := range Schedule(t.opts.Seed, serverLane, t.opts.Faults) {
		if pause.For(ctx, step.Pause) != nil {
			return
		}
		done := false
		switch step.Fault {
		case Worker:
			done = t.killWorker(step.Pick)
		case Server, Upgrade:
			if t.opts.Kills > 0 && t.kills.Load() >= int64(t.opts.Kills) {
				continue
			}
			done = t.killServer(step.Fault == Upgrade)
		case Keeper:
			done = t.killKeepers()
		case Disk:
			done = t.fillDisk(ctx, step.Hold)
		}
		t.countStep(step, done)
		t.logf("%s", step)
	}
}

// killServer kills the server and starts it again. Runs that the server owned
// itself have an unknown outcome then; runs of a keeper do not.
func (t *trial) killServer(upgrade bool) bool {
	t.kills.Add(1)
	if len(t.server.keepers()) > 0 {
		t.keeper.Store(true)
	}
	if !t.keeper.Load() {
		defer t.excuse(Server)()
	}
	if err := t.server.restart(upgrade); err != nil {
		t.violate(Violation{Kind: Died, Detail: err.Error()})
	}
	return true
}

func killProcess(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// killKeepers kills the keepers.
func (t *trial) killKeepers() bool {
	pids := t.server.keepers()
	if len(pids) == 0 {
		return false
	}
	t.keeper.Store(true)
	defer t.excuse(Keeper)()
	for _, pid := range pids {
		_ = killProcess(pid) // it may be exiting
	}
	return true
}

// killWorker kills the leader of a run.
func (t *trial) killWorker(pick uint64) bool {
	t.mu.Lock()
	able := slices.Collect(maps.Values(t.live))
	t.mu.Unlock()
	able = slices.DeleteFunc(able, func(r *run) bool {
		n, ok := workerOf(r.ledger.pid(), t.mark)
		return !ok || n != r.plan.Run // not yet started, or ended
	})
	if len(able) == 0 {
		return false
	}
	slices.SortFunc(able, func(a, b *run) int { return int(a.plan.Run) - int(b.plan.Run) })
	r := able[pick%uint64(len(able))]
	r.killed.Store(true)
	return killProcess(r.ledger.pid()) == nil
}

// fillDisk fills the server's disk for a while. Events logged then may be lost
// if the server reports the loss.
func (t *trial) fillDisk(ctx context.Context, hold time.Duration) bool {
	defer t.excuse(Disk)()
	path := filepath.Join(t.server.state, "filler")
	defer func() { _ = os.Remove(path) }()
	if err := fillDisk(path); err != nil {
		t.logf("%v", err)
		return false
	}
	_ = pause.For(ctx, hold)
	return true
}
