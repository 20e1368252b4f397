package backendtest

import (
	"errors"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// namesAtOnce starts processes with one name at once: one start wins, and the name
// is free again after its end.
func namesAtOnce(t *testing.T, b spool.Backend) {
	spec := sh("read x")
	spec.Stdin, spec.Name = true, "one-of-many"
	for range 2 {
		startOne(t, b, spec)
	}
}

// kernelNamesAtOnce is namesAtOnce for kernels.
func kernelNamesAtOnce(t *testing.T, b spool.Backend) {
	startOne(t, b, spool.Spec{Engine: python.EngineKernel, Name: "one-kernel"})
}

// startOne starts a spec many times at once, checks that one start wins, and ends
// that run.
func startOne(t *testing.T, b spool.Backend, spec spool.Spec) {
	t.Helper()
	var mu sync.Mutex
	var won []*spool.Run
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := spool.Start(t.Context(), b, spec)
			var refused *spool.StartError
			switch {
			case err == nil:
				mu.Lock()
				won = append(won, r)
				mu.Unlock()
			case !errors.Is(err, spool.ErrExists) || !errors.As(err, &refused) || refused.Reason != "name_taken" || refused.Hint == "":
				t.Errorf("start: %v", err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d of the starts with one name won", len(won))
	}
	for _, r := range won {
		if err := r.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// renamesAtOnce gives several live runs one name at once: one of them gets it.
func renamesAtOnce(t *testing.T, b spool.Backend) {
	renamer, ok := b.(spool.Renamer)
	if !ok {
		t.Fatalf("%T is no Renamer", b)
	}
	spec := sh("read x")
	spec.Stdin = true
	var runs []*spool.Run
	for range 4 {
		runs = append(runs, start(t, b, spec))
	}
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for _, r := range runs {
		wg.Go(func() {
			_, err := renamer.Rename(t.Context(), r.ID(), "wanted")
			switch {
			case err == nil:
				mu.Lock()
				won++
				mu.Unlock()
			case !errors.Is(err, spool.ErrExists):
				t.Errorf("rename: %v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d live runs have one name", won)
	}
	for _, r := range runs {
		if err := r.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
