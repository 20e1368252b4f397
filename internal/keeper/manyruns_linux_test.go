package keeper_test

import (
	"sync"
	"testing"

	"github.com/spool-run/spool"
)

// What a process holds of many runs that were read until their end is dropped when their
// readers are gone, not when the next run comes.
func TestManyRunsThatHaveEnded(t *testing.T) {
	b := open(t, stateDir(t), "one")
	_, kept := b.Mirrors()
	var readers sync.WaitGroup
	var runs []*spool.Run
	for range 2 * kept {
		run, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
		readers.Go(func() {
			for _, err := range run.Events(t.Context(), 0) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	if held, _ := b.Mirrors(); held != len(runs) {
		t.Errorf("%d of %d live runs are held", held, len(runs))
	}
	for _, run := range runs {
		if err := run.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	readers.Wait()
	if held, _ := b.Mirrors(); held > kept {
		t.Errorf("%d finished runs are held, want at most %d", held, kept)
	}
}
