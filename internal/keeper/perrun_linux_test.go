package keeper_test

import (
	"context"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/polltest"
)

// TestWhatALiveRunHolds checks what a live run that nobody hears of holds in the keeper
// and in the process that follows it: thousands of them are possible because of that.
func TestWhatALiveRunHolds(t *testing.T) {
	dir := stateDir(t)
	serving, end := context.WithCancel(t.Context())
	served, ready := make(chan error, 1), make(chan struct{})
	go func() {
		served <- keeper.Serve(serving, keeper.ServeOptions{Host: hostOptions(dir), Build: "one", Ready: func() { close(ready) }})
	}()
	<-ready
	b := open(t, dir, "one")
	ctx, leave := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer func() {
		leave()
		readers.Wait()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	// add adds runs that have said something, each with a reader that waits for more.
	add := func(n int) {
		t.Helper()
		heard := make(chan error, n)
		for range n {
			info, err := b.Start(t.Context(), spool.Spec{Argv: []string{"sh", "-c", "echo; exec sleep 1000"}})
			if err != nil {
				t.Fatal(err)
			}
			readers.Go(func() {
				for e, err := range b.Follow(ctx, info.ID, 0) {
					if e.Seq <= 1 && ctx.Err() == nil {
						heard <- err
					}
				}
			})
		}
		for range n {
			if err := <-heard; err != nil {
				t.Fatal(err)
			}
		}
	}
	const before, more = 24, 64
	add(before) // also what there is once
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	add(more)
	// What is kept ready for the next runs is a few more or less.
	each := func(now, then int) float64 { return float64(now-then) / more }
	polltest.Until(t, "a live run holds the ends of its output, the descriptor that tells of its end, and its log", func() bool {
		return each(openFiles(t), files) < 4.3
	})
	polltest.Until(t, "a live run has no goroutine, and its reader one", func() bool {
		return each(runtime.NumGoroutine(), goroutines) < 1.3
	})
}

// openFiles counts the open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
