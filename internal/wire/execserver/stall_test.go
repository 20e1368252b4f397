package execserver

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
				var stalled atomic.Bool
				stop := watchWrites(c, time.Minute, func() bool { return tt.crowded }, func() {
					stalled.Store(true)
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
