package torture

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
)

// Labels by which Spool finds the runs of a session.
const (
	labelSession = "exec-server.session"
	labelProcess = "exec-server.process"
)

// auditors is the number of logs read at once.
const auditors = 8

// audit reads every log again, from another server over another connection, and
// compares it with the events seen live.
func (t *trial) audit(ctx context.Context) error {
	if err := t.server.restart(false); err != nil {
		t.violate(Violation{Kind: Died, Detail: err.Error()})
		return nil
	}
	c, err := client.Dial(ctx, "ws://"+t.addr, client.Options{})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = c.Close() }() // everything was read
	type key struct{ session, process string }
	ids := make(map[key]spool.RunID)
	for info, err := range c.List(ctx, spool.Filter{}) {
		if err != nil {
			t.violate(Violation{Kind: BadReplay, Detail: fmt.Sprintf("list runs: %v", err)})
			break
		}
		if s, ok := info.Labels[labelSession]; ok {
			ids[key{s, info.Labels[labelProcess]}] = info.ID
		}
	}
	var wg sync.WaitGroup
	todo := make(chan result)
	for range auditors {
		wg.Go(func() {
			for res := range todo {
				t.auditOne(ctx, c, res)
			}
		})
	}
	t.mu.Lock()
	results := t.results
	t.mu.Unlock()
	for _, res := range results {
		if res.session != "" {
			id, ok := ids[key{res.session, res.id}]
			if !ok {
				t.violate(Violation{Kind: BadReplay, Run: res.name, ID: res.id, Via: res.via, Detail: "no run has this process id at the end"})
				continue
			}
			res.id = string(id)
		}
		todo <- res
	}
	close(todo)
	wg.Wait()
	return ctx.Err()
}

func (t *trial) auditOne(ctx context.Context, c *client.Client, res result) {
	digest, last := sha256.New(), spool.Seq(0)
	for e, err := range c.Follow(ctx, spool.RunID(res.id), 0) {
		if err != nil {
			if ctx.Err() == nil {
				t.violate(Violation{Kind: BadReplay, Run: res.name, ID: res.id, Via: res.via, Detail: fmt.Sprintf("at the end, after event %d: %v", last, err)})
			}
			return
		}
		note(digest, fromLog(&e, res.tty))
		last = e.Seq
	}
	t.audited.Add(1)
	if [sha256.Size]byte(digest.Sum(nil)) != res.sum {
		t.violate(Violation{Kind: BadReplay, Run: res.name, ID: res.id, Via: res.via, Detail: fmt.Sprintf("the log has %d events at the end and had %d live, and they differ", last, res.last)})
	}
}
