package store

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
)

// TestHammer has many kinds of readers read whole events, in order, while others
// are written.
func TestHammer(t *testing.T) {
	const total = 3000
	dir := t.TempDir()
	s := openStore(t, dir, Options{SegmentBytes: 50_000, Sync: SyncInterval, SyncEvery: time.Millisecond})
	elsewhere := openStore(t, dir, Options{})
	j := create(t, s, "r")
	payload := func(seq spool.Seq) []byte {
		b := make([]byte, int(seq*37%900)+8)
		for i := range b {
			b[i] = byte(seq)
		}
		binary.LittleEndian.PutUint64(b, uint64(seq))
		return b
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			r := j
			if i%3 == 0 {
				var err error
				if r, err = elsewhere.Open("r"); err != nil {
					t.Error(err)
					return
				}
			}
			next := spool.Seq(1)
			for {
				if err := r.Refresh(); err != nil {
					t.Error(err)
					return
				}
				last, sealed := r.Last()
				page, err := r.Read(nil, next-1, 1<<(4+i))
				if err != nil {
					t.Errorf("reader %d after %d: %v", i, next-1, err)
					return
				}
				for _, e := range page {
					if e.Seq != next || string(e.Bytes) != string(payload(next)) {
						t.Errorf("reader %d: event %d, want %d", i, e.Seq, next)
						return
					}
					next++
				}
				if r.Info().ID != "r" {
					t.Errorf("info of %q", r.Info().ID)
				}
				if sealed && next > last {
					if last != total {
						t.Errorf("reader %d: sealed after %d", i, last)
					}
					return
				}
			}
		})
	}
	for seq := spool.Seq(1); seq <= total; seq++ {
		e := output(seq, payload(seq))
		if err := j.Append(&e); err != nil {
			t.Error(err)
			break
		}
		if seq%500 == 0 {
			if err := j.Note(testInfo("r")); err != nil {
				t.Error(err)
			}
			for range s.List() {
				continue
			}
		}
	}
	if err := j.Seal(testInfo("r")); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestSyncInterval(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, dir, Options{Sync: SyncInterval, SyncEvery: time.Minute})
		var mu sync.Mutex
		synced := 0
		var fail error
		s.fsync = func(*os.File) error {
			mu.Lock()
			defer mu.Unlock()
			synced++
			return fail
		}
		want := func(n int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if synced != n {
				t.Errorf("%d syncs, want %d", synced, n)
			}
			synced = 0
		}
		pass := func() { time.Sleep(time.Minute); synctest.Wait() } // a fake minute
		j := create(t, s, "r")
		create(t, s, "idle")
		want(0)
		pass()
		want(3) // two journals and the directory
		pass()
		want(0)
		appendSizes(t, j, 10, 10, 10)
		want(0)
		pass()
		want(1)

		appendSizes(t, j, 10)
		mu.Lock()
		fail = errors.New("no disk")
		mu.Unlock()
		pass()
		want(1)
		mu.Lock()
		fail = nil
		mu.Unlock()
		e := output(5, nil)
		if err := j.Append(&e); err == nil {
			t.Error("append after a failed sync: no error")
		}
		appendAll(t, j, e) // the error is returned once
		if err := j.Seal(testInfo("r")); err != nil {
			t.Fatal(err)
		}
		want(0)
		pass()
		want(1)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		want(0)
	})
}

func TestSyncAlways(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{Sync: SyncAlways, SegmentBytes: 1000})
	synced := 0
	var fail error
	s.fsync = func(*os.File) error { synced++; return fail }
	want := func(n int) {
		t.Helper()
		if synced != n {
			t.Errorf("%d syncs, want %d", synced, n)
		}
		synced = 0
	}
	j := create(t, s, "r")
	want(2) // the file and its directory
	events := appendSizes(t, j, 10, 10)
	want(2)
	events = append(events, appendSizes(t, j, 1000)...)
	want(3) // with a new segment

	fail = errors.New("no disk")
	e := output(4, []byte("lost"))
	if err := j.Append(&e); !errors.Is(err, fail) {
		t.Errorf("append: %v", err)
	}
	fail = nil
	events = append(events, appendSizes(t, j, 5)...)
	r, err := s.Open("r")
	if err != nil {
		t.Fatal(err)
	}
	wantEvents(t, "r", readAll(t, r, 1000), events)
}
