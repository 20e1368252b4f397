package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/disktest"
)

// On a full disk, logs end in the space of the reserve. Nothing else may use it,
// and it is filled again once there is space.
func TestReserve(t *testing.T) {
	dir := disktest.Small(t, "size=3m")
	s := openStore(t, dir, Options{})
	if err := s.KeepReserve(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	mustWrite(t, ballast, make([]byte, 1<<20))
	journals := make([]*Journal, 3)
	for i := range journals {
		journals[i] = create(t, s, spool.RunID(rune('a'+i)))
	}
	next := make([]spool.Seq, len(journals))
	fill := func(size int) {
		t.Helper()
		for i, j := range journals {
			for _, sealed := j.Last(); !sealed; {
				e := output(next[i]+1, make([]byte, size))
				err := j.Append(&e)
				if errors.Is(err, unix.ENOSPC) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				next[i]++
			}
		}
	}
	fill(30_000)
	fill(1)
	for i, j := range journals[:2] {
		for _, kind := range []spool.Kind{spool.KindFailed, spool.KindClosed} {
			next[i]++
			if err := j.Append(&spool.Event{Seq: next[i], Time: s.now(), Kind: kind}); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
		}
		if err := j.Seal(testInfo(j.id)); err != nil {
			t.Fatal(err)
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, reserveName)); err != nil || fi.Size() == reserveBytes || fi.Size() < reserveBytes/2 {
		t.Errorf("the reserve has %d bytes, %v", fi.Size(), err)
	}
	before := next[2]
	fill(1)
	if next[2] != before {
		t.Error("output used the space of the reserve")
	}
	if _, err := s.Create(testInfo("other")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("create: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	fill(30_000)
	if next[2] < before+10 {
		t.Errorf("%d events once there was space", next[2]-before)
	}
	if fi, err := os.Stat(filepath.Join(dir, reserveName)); err != nil || fi.Size() != reserveBytes {
		t.Errorf("the reserve was not filled again: %v, %v", fi, err)
	}
	for i, id := range []spool.RunID{"a", "b", "c"} {
		j, err := s.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		if last, sealed := j.Last(); last != next[i] || sealed != (i < 2) {
			t.Errorf("%s: %d events, sealed %v", id, last, sealed)
		}
		if err := errors.Join(j.Close(), journals[i].Close()); err != nil {
			t.Error(err)
		}
	}
}
