//go:build amd64 || arm64

package pyodide

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/pyodidetest"
)

var kills = flag.Int("kills", 3, "scripts of each context of TestKillAtAnyTime")

// TestKillAtAnyTime ends scripts and contexts in every phase: being
// forked, beginning, computing, sleeping, asking. Nothing may hang or be left.
func TestKillAtAnyTime(t *testing.T) {
	t.Run("of those that wait", func(t *testing.T) { killThem(t, real(t)) })
	t.Run("of those made on demand", func(t *testing.T) {
		b := New(Options{Dist: pyodidetest.Dist(t), Spares: -1})
		defer b.Close()
		group := killThem(t, b)
		ctx := testContext(t)
		group.mu.Lock()
		left := slices.Collect(maps.Values(group.procs))
		group.mu.Unlock()
		for _, p := range left {
			select {
			case <-p.exited:
			case <-ctx.Done():
				t.Errorf("process %d is left", p.id)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		group.mu.Lock()
		defer group.mu.Unlock()
		if group.procs != nil {
			t.Errorf("%d processes are left", len(group.procs))
		}
	})
}

// killThem has contexts of a back end run and end, and returns where they were.
func killThem(t *testing.T, b *Backend) *group {
	t.Helper()
	codes := []string{"while True: pass", "import time\ntime.sleep(100)", "print(1)", "while True: print('x' * 1000)",
		"import os\nwhile True: os.stat('/workspace')", "input()"}
	ctx := testContext(t)
	var group *group
	var wg sync.WaitGroup
	for i := range 60 {
		c := open(t, b, func(o *guest.Options) { o.Fresh = i%2 == 0 })
		group = c.group
		wg.Go(func() {
			for j := range *kills {
				// A moment that is anywhere between now and the middle of the script.
				one, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(100*time.Millisecond))))
				if j == *kills-1 && i%3 == 0 {
					stop := context.AfterFunc(one, func() { _ = c.Close() })
					defer stop()
				}
				r, err := c.Run(one, guest.Script{Code: codes[(i+j)%len(codes)]}, newHost())
				if err != nil && one.Err() == nil {
					t.Errorf("context %d: %v", i, err)
				} else if err == nil && one.Err() == nil && (r.EndedBy != "" || r.ExitCode > 1) {
					t.Errorf("context %d: %+v", i, r)
				}
				cancel()
			}
			_ = c.Close()
		})
	}
	wg.Wait()
	if err := group.failure(); err != nil {
		t.Errorf("what holds them is gone: %v", err)
	}
	c := open(t, b, nil)
	prints(t, c, "print('alive')", "alive\n")
	_ = c.Close()
	return group
}

// A holder of interpreters that does nothing any more is ended all the same.
func TestHungSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	nd, err := findNode(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{})
	defer b.Close()
	n, err := b.startGroup(ctx, plan{Node: nd.path, Libs: nd.libs, Dist: t.TempDir(), HeapMB: heapMB, Wall: isolate.Namespaces}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(n.first.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		n.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Error("it was waited for without end")
	}
}
