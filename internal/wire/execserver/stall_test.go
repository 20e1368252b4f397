package execserver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// TestStalledFor waits for a write that gets on, and for ones that do not: with
// shared room left, and without.
func TestStalledFor(t *testing.T) {
	for _, tt := range []struct {
		name    string
		crowded bool
		want    time.Duration
	}{
		{"room left", false, time.Minute},
		{"room used up", true, crowdedStalled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				c := &watchedConn{Conn: a}
				s := &Server{budget: rpc.NewBudget(1), intake: rpc.NewIntake(0, 1), waits: waits{crowded: crowdedStalled}}
				s.opts.Limits.Stalled = time.Minute
				if tt.crowded {
					defer fill(t, s.budget)()
				}
				var stalled atomic.Bool
				stop := s.watch(c, nil, func(err error) {
					stalled.Store(err == errStalled)
					_ = a.Close()
				})
				defer stop()
				time.Sleep(time.Hour) // of the bubble: a connection without writes
				go func() {
					_, _ = b.Read(make([]byte, 1))
				}()
				if _, err := c.Write([]byte{1}); err != nil || stalled.Load() {
					t.Fatalf("a write that is read: %v", err)
				}
				time.Sleep(time.Hour)
				begin := time.Now()
				if _, err := c.Write([]byte{1}); err == nil || !stalled.Load() {
					t.Errorf("a write that is not read: %v", err)
				}
				if d := time.Since(begin); d < tt.want || d > tt.want+tt.want/4 {
					t.Errorf("closed after %v, want %v", d, tt.want)
				}
				_ = b.Close()
			})
		})
	}
}

// fill uses a budget up, and has an account wait for it.
func fill(t *testing.T, b *rpc.Budget) (free func()) {
	b.Account(0, 1).Add(1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.Account(0, 1).Acquire(ctx, 1) })
	synctest.Wait()
	return func() {
		cancel()
		wg.Wait()
	}
}
