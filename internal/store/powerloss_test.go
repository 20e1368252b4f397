package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// disk records what was synced: what survives the death of the machine for sure.
type disk struct {
	dir string

	mu    sync.Mutex
	sizes map[uint64]int64  // of files, by inode
	names map[string]uint64 // in the runs directory
}

// watch records every sync of a store.
func watch(t *testing.T, s *Store) *disk {
	d := &disk{dir: s.runsDir(), sizes: make(map[uint64]int64), names: make(map[string]uint64)}
	s.fsync = func(f *os.File) error {
		fi, err := f.Stat()
		if err != nil {
			return err // a closed file was synced before
		}
		if err := datasync(f); err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if !fi.IsDir() {
			d.sizes[inode(fi)] = fi.Size()
			return nil
		}
		clear(d.names)
		entries, err := os.ReadDir(d.dir)
		for _, e := range entries {
			if fi, err := e.Info(); err == nil {
				d.names[e.Name()] = inode(fi)
			}
		}
		return err
	}
	return d
}

// lose returns a copy of the runs as the death of the machine may leave them:
// what was synced, and some of the bytes that were not.
func (d *disk) lose(t *testing.T, more int64) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, ino := range d.names {
		b, err := os.ReadFile(filepath.Join(d.dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // renamed meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(dir, "runs", name), b[:min(int64(len(b)), d.sizes[ino]+more)])
	}
	return dir
}

// With SyncAlways the death of the machine at any event loses no event that
// Append has returned for.
func TestPowerLossAlways(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Sync: SyncAlways, SegmentBytes: 20_000})
	d := watch(t, s)
	j := create(t, s, "r")
	var want []spool.Event
	for seq := spool.Seq(1); seq <= 30; seq++ {
		want = append(want, appendSizes(t, j, int(seq)*100)...)
		for _, more := range []int64{0, 7} {
			s := openStore(t, d.lose(t, more), Options{})
			r, _, err := s.Recover("r")
			if err != nil {
				t.Fatalf("after event %d: %v", seq, err)
			}
			wantEvents(t, "r", readAll(t, r, 1<<20), want)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// With SyncInterval the death of the machine loses only the events after the last
// sync, and Recover reports the part of a record that it cuts off.
func TestPowerLossInterval(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Sync: SyncInterval, SyncEvery: time.Hour, SegmentBytes: 20_000})
	d := watch(t, s)
	j := create(t, s, "r")
	var synced, all []spool.Event
	for round := range 10 {
		for range 5 {
			all = append(all, appendSizes(t, j, 100+700*round)...)
		}
		if err := s.syncDirty(); err != nil { // as at the end of an interval
			t.Fatal(err)
		}
		synced = all[:len(all):len(all)]
		all = append(all, appendSizes(t, j, 50, 60)...)

		for _, more := range []int64{0, 9} {
			s := openStore(t, d.lose(t, more), Options{})
			r, cut, err := s.Recover("r")
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			wantEvents(t, "r", readAll(t, r, 1<<20), synced)
			if cut.Bytes != more || more > 0 && !strings.Contains(cut.Reason, "at offset") {
				t.Errorf("round %d: cut %+v, want %d bytes", round, cut, more)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
