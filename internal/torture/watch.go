package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool/internal/pause"
)

// Intervals of the checks.
const (
	sampleEvery = 100 * time.Millisecond
	scanEvery   = 500 * time.Millisecond
)

// watch samples memory, looks for processes that outlived their run, and
// reports progress.
func (t *trial) watch(ctx context.Context) {
	sample := time.NewTicker(sampleEvery)
	defer sample.Stop()
	scan := time.NewTicker(scanEvery)
	defer scan.Stop()
	over := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-sample.C:
			rss, shares := t.memory()
			t.peak.Store(max(t.peak.Load(), rss))
			if rss > t.opts.MaxRSS && !over {
				over = true
				t.violate(Violation{Kind: Memory, Detail: fmt.Sprintf("%d MiB are resident, %s; the limit is %d MiB", rss>>20, shares, t.opts.MaxRSS>>20)})
			}
		case <-scan.C:
			t.scan()
			if t.opts.Progress != nil {
				t.opts.Progress(t.report())
			}
		}
	}
}

// memory returns the resident memory of the server and its keepers, and the
// share of each.
func (t *trial) memory() (rss int64, shares string) {
	if t.server == nil {
		return resident(t.peer), "all of it in the server" // process zero has none
	}
	rss = resident(t.server.pid())
	shares = fmt.Sprintf("%d in the server", rss>>20)
	for _, pid := range t.server.keepers() {
		n := resident(pid)
		shares += fmt.Sprintf(", %d in a keeper", n>>20)
		rss += n
	}
	return rss, shares
}

// scan looks for leftover processes of ended runs and returns how many runs are
// still watched.
func (t *trial) scan() int {
	now := time.Now()
	alive, err := workers(t.mark)
	if err != nil {
		t.logf("%v", err)
		return 0
	}
	type leftover struct {
		run  *run
		pids []int
	}
	var bad []leftover
	t.mu.Lock()
	for number, r := range t.ended {
		pids := alive[number]
		ended := now.Sub(t.endedAt[number])
		switch {
		case len(pids) > 0 && ended > t.opts.Grace:
			bad = append(bad, leftover{r, pids})
		case len(pids) > 0 || ended <= min(t.opts.Grace, DefaultGrace):
			continue // a start may still be in progress
		}
		delete(t.ended, number)
		delete(t.endedAt, number)
		r.discard()
	}
	left := len(t.ended)
	t.mu.Unlock()
	for _, l := range bad {
		for _, pid := range l.pids {
			_ = killProcess(pid) // leave no process behind
		}
		t.violate(Violation{
			Kind: Running, Run: l.run.plan.name(), ID: l.run.id, Via: l.run.via,
			Detail: fmt.Sprintf("processes %v live %s after the end", l.pids, t.opts.Grace),
		})
	}
	return left
}

// awaitEnds waits until every run was watched for long enough.
func (t *trial) awaitEnds(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		left := len(t.ended)
		t.mu.Unlock()
		if left == 0 {
			break
		}
		_ = pause.For(ctx, sampleEvery)
	}
	alive, err := workers(t.mark)
	if err != nil {
		t.logf("%v", err)
	}
	for number, pids := range alive {
		for _, pid := range pids {
			_ = killProcess(pid)
		}
		t.violate(Violation{Kind: Running, Detail: fmt.Sprintf("processes %v of run %d live at the end", pids, number)})
	}
}
