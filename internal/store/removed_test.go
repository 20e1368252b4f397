package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/spool-run/spool"
)

// TestRemovals has several stores of one directory tell of runs that they removed: each
// reader gets each once, also across a file that begins anew.
func TestRemovals(t *testing.T) {
	removedSize = 6 << 10 // so that the file begins anew once
	defer func() { removedSize = 1 << 20 }()
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	reader := open()
	early, err := reader.Removals()
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if got, err := early.Next(); err != nil || len(got) != 0 {
		t.Errorf("at first %v, %v", got, err)
	}
	open().noteRemoved([]spool.RunID{"first"})
	late, err := reader.Removals()
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()

	const writers, each, batch = 4, 5, 25
	var wg sync.WaitGroup
	for w := range writers {
		s := open()
		wg.Go(func() {
			for i := range each {
				ids := make([]spool.RunID, batch)
				for n := range ids {
					ids[n] = spool.RunID(fmt.Sprintf("removedrun%dx%dx%d", w, i, n))
				}
				s.noteRemoved(ids)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var got []spool.RunID
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		more, err := late.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
	}
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); len(got) != writers*each*batch || n != len(got) {
		t.Errorf("%d runs, %d of them different", len(got), n)
	}
	if got, err := early.Next(); err != nil || len(got) == 0 || got[0] != "first" {
		t.Errorf("the early reader: %d, %v", len(got), err)
	}
}
