package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/failpoint"
)

// linesEnded is when the runs of logLines ended.
var linesEnded = epoch.Add(time.Hour)

// logLines writes a complete run with lines of text, several to an event.
func logLines(t testing.TB, s *Store, id spool.RunID, size int) {
	t.Helper()
	j := create(t, s, id)
	rnd := rand.New(rand.NewPCG(1, 1))
	var b bytes.Buffer
	for seq, n := spool.Seq(1), 0; n < size; seq++ {
		b.Reset()
		for range 1 + rnd.IntN(20) {
			fmt.Fprintf(&b, "2026-01-02 15:04:05 INFO server: request %d for /api/v1/users/%d took %d ms\n", n, rnd.IntN(1000), rnd.IntN(90))
		}
		n += b.Len()
		e := output(seq, b.Bytes())
		if err := j.Append(&e); err != nil {
			t.Fatal(err)
		}
	}
	info := j.Info()
	info.State, info.Ended = spool.StateClosed, linesEnded
	if err := errors.Join(j.Seal(info), j.Close()); err != nil {
		t.Fatal(err)
	}
}

// all returns the whole log of a run.
func all(t testing.TB, s *Store, id spool.RunID) []spool.Event {
	t.Helper()
	j, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	var events []spool.Event
	for after := spool.Seq(0); ; after = events[len(events)-1].Seq {
		n := len(events)
		if events, err = j.Read(events, after, 100<<10); err != nil {
			t.Fatal(err)
		}
		if len(events) == n {
			return events
		}
	}
}

func sameEvents(a, b []spool.Event) bool {
	return slices.EqualFunc(a, b, func(x, y spool.Event) bool {
		return x.Seq == y.Seq && x.Kind == y.Kind && x.Time.Equal(y.Time) && bytes.Equal(x.Bytes, y.Bytes) && bytes.Equal(x.Data, y.Data)
	})
}

// diskSize returns what the segments of a run take.
func diskSize(t testing.TB, s *Store, id spool.RunID) int64 {
	t.Helper()
	segs, err := s.segments(id)
	if err != nil {
		t.Fatal(err)
	}
	return sizeOf(segs)
}

// temporary returns the files that a compression leaves if it is interrupted.
func temporary(t testing.TB, s *Store) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.runsDir(), "*"+newExt))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCompress(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 512 << 10})
	logLines(t, s, "r", 2<<20)
	want, before := all(t, s, "r"), diskSize(t, s, "r")
	reader, err := s.Open("r") // before, and reads after
	if err != nil {
		t.Fatal(err)
	}
	saved, err := s.Compress(t.Context(), "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	after := diskSize(t, s, "r")
	if saved != before-after || after > before/5 {
		t.Errorf("%d of %d bytes, %d saved", after, before, saved)
	}
	if !sameEvents(all(t, s, "r"), want) {
		t.Error("the log differs")
	}
	for _, seq := range []spool.Seq{0, 1, 7, want[len(want)/2].Seq, want[len(want)-2].Seq} {
		got, err := reader.Read(nil, seq, 10<<10)
		if err != nil || !sameEvents(got, want[seq:int(seq)+len(got)]) || len(got) == 0 {
			t.Errorf("read after %d: %d events, %v", seq, len(got), err)
		}
		j, err := s.Open("r")
		if err != nil {
			t.Fatal(err)
		}
		records, last, err := j.ReadRecords(nil, seq, 10<<10)
		if err != nil || len(records) == 0 || last <= seq {
			t.Errorf("records after %d: %d bytes to %d, %v", seq, len(records), last, err)
		}
	}
	infos := 0
	for info, err := range s.List() {
		if infos++; err != nil || info.ID != "r" || info.State != spool.StateClosed || info.Last != want[len(want)-1].Seq {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if infos != 1 {
		t.Errorf("%d runs are listed", infos)
	}
	if saved, err := s.Compress(t.Context(), "r", nil); saved != 0 || err != nil {
		t.Errorf("again: %d, %v", saved, err)
	}
	if j, cut, err := s.Recover("r"); err != nil || cut != (Cut{}) || j.Close() != nil {
		t.Errorf("recover: %+v, %v", cut, err)
	}
	if left := temporary(t, s); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := s.Remove("r"); err != nil {
		t.Error(err)
	}
	if _, err := s.Open("r"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

func TestCompressOnlyWhatIsWorthIt(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	live := create(t, s, "live")
	appendSizes(t, live, 10*compressMin)
	if _, err := s.Compress(t.Context(), "live", nil); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a live run: %v", err)
	}
	if _, err := s.Compress(t.Context(), "none", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no run: %v", err)
	}
	noise := create(t, s, "noise")
	random := make([]byte, 10*compressMin)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	appendAll(t, noise, output(1, random))
	info := noise.Info()
	info.State = spool.StateClosed
	if err := noise.Seal(info); err != nil {
		t.Fatal(err)
	}
	logLines(t, s, "small", compressMin/2)
	for _, id := range []spool.RunID{"noise", "small"} {
		if saved, err := s.Compress(t.Context(), id, nil); saved != 0 || err != nil {
			t.Errorf("%s: %d, %v", id, saved, err)
		}
	}
	if left := temporary(t, s); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestCompressEnded(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	for id, filed := range map[spool.RunID]bool{"unfiled": false, "filed": true} {
		logLines(t, s, id, 4*compressMin)
		if filed {
			file(t, s)
		}
		// The run began before all of these times.
		for _, c := range []struct {
			after, before time.Time
			want          bool
		}{
			{time.Time{}, linesEnded, false},
			{linesEnded.Add(-time.Second), linesEnded.Add(time.Second), true},
			{linesEnded.Add(-time.Second), linesEnded.Add(time.Second), false}, // again
		} {
			saved, err := s.CompressEnded(t.Context(), c.after, c.before, nil)
			if err != nil || (saved > 0) != c.want {
				t.Errorf("%s, ended between %v and %v: %d, %v", id, c.after, c.before, saved, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	logLines(t, s, "other", 4*compressMin)
	before := diskSize(t, s, "other")
	if _, err := s.Compress(ctx, "other", cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if diskSize(t, s, "other") != before || len(temporary(t, s)) > 0 {
		t.Error("a canceled compression left something")
	}
}

// A compression that fails at any point leaves the log, and nothing that the
// next sweep does not remove.
func TestCompressInterrupted(t *testing.T) {
	for _, point := range []string{"store.sieve", "store.compress", "store.compressed"} {
		t.Run(point, func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{})
			logLines(t, s, "r", 4*compressMin)
			want := all(t, s, "r")
			failed := errors.New("failed")
			remove := failpoint.Enable(point, 0, failpoint.Fail(failed))
			if _, err := s.Compress(t.Context(), "r", nil); !errors.Is(err, failed) {
				t.Errorf("error is %v", err)
			}
			remove()
			if !sameEvents(all(t, s, "r"), want) {
				t.Error("the log differs")
			}
			if _, err := s.Compress(t.Context(), "r", nil); err != nil {
				t.Error(err)
			}
			if !sameEvents(all(t, s, "r"), want) {
				t.Error("the log differs after the second try")
			}
		})
	}
}

// A run that is removed while it is compressed stays removed.
func TestCompressDoesNotBringARunBack(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	logLines(t, s, "r", 4*compressMin)
	removed := false
	_, err := s.Compress(t.Context(), "r", func() {
		if !removed {
			removed = true
			if err := s.Remove("r"); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(s.runsDir())
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// Readers at any cursor see the same log while it is compressed.
func TestReadWhileCompressed(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 256 << 10})
	logLines(t, s, "r", 1<<20)
	want := all(t, s, "r")
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(5, uint64(w)))
			for round := 0; ; round++ {
				select {
				case <-done:
					if round > 3 {
						return
					}
				default:
				}
				j, err := s.Open("r")
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 {
					seq := rnd.IntN(len(want))
					got, err := j.Read(nil, spool.Seq(seq), 1+rnd.IntN(200<<10))
					if err != nil || len(got) == 0 || !sameEvents(got, want[seq:seq+len(got)]) {
						t.Errorf("read after %d: %d events, %v", seq, len(got), err)
						return
					}
				}
			}
		})
	}
	_, err := s.Compress(t.Context(), "r", nil)
	close(done)
	wg.Wait()
	if err != nil {
		t.Error(err)
	}
}

func TestDamageOfACompressedSegment(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	logLines(t, s, "r", 3*blockfile.BlockSize)
	want := all(t, s, "r")
	if _, err := s.Compress(t.Context(), "r", nil); err != nil {
		t.Fatal(err)
	}
	segs, err := s.segments("r")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(segs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	// One byte in the middle: what is before it can be read, and the rest is
	// an error, never something else.
	rnd := rand.New(rand.NewPCG(9, 9))
	for range 15 {
		b := bytes.Clone(whole)
		b[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		if err := os.WriteFile(segs[0].path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []spool.Event
		j, err := s.Open("r")
		for after := spool.Seq(0); err == nil; after = got[len(got)-1].Seq {
			n := len(got)
			if got, err = j.Read(got, after, 64<<10); len(got) == n {
				break
			}
		}
		if !sameEvents(got, want[:len(got)]) {
			t.Fatal("events differ")
		}
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			t.Errorf("error is %v", err)
		}
		if err == nil && len(got) < len(want) {
			t.Errorf("%d of %d events without an error", len(got), len(want))
		}
	}
}

func BenchmarkReadCompressed(b *testing.B) {
	s := openStore(b, b.TempDir(), Options{})
	logLines(b, s, "raw", 64<<20)
	logLines(b, s, "compressed", 64<<20)
	if _, err := s.Compress(b.Context(), "compressed", nil); err != nil {
		b.Fatal(err)
	}
	for _, id := range []spool.RunID{"raw", "compressed"} {
		b.Run(string(id), func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				j, err := s.Open(id)
				if err != nil {
					b.Fatal(err)
				}
				var page []spool.Event
				for after := spool.Seq(0); ; after = page[len(page)-1].Seq {
					if page, err = j.Read(page[:0], after, 256<<10); err != nil {
						b.Fatal(err)
					}
					if len(page) == 0 {
						break
					}
				}
			}
		})
		b.Run(string(id)+"/records", func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				j, err := s.Open(id)
				if err != nil {
					b.Fatal(err)
				}
				var buf []byte
				last, _ := j.Last()
				for after := spool.Seq(0); after < last; {
					if buf, after, err = j.ReadRecords(buf[:0], after, 1<<20); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
