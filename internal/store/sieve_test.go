package store

import (
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sieve"
)

// sift returns the parts of the segment with an event.
func sift(t *testing.T, s *Store, id spool.RunID, after spool.Seq, text string) (parts []sieve.Part) {
	t.Helper()
	j, err := s.Open(id)
	if err == nil {
		parts, _, err = j.Sift(after, sieve.NewQuery([][]string{{text}}), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestSift(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 1 << 20})
	logLines(t, s, "r", 5<<19)
	want := all(t, s, "r")
	if parts := sift(t, s, "r", 0, "absent"); len(parts) > 0 {
		t.Errorf("%d parts of a log that is not compressed", len(parts))
	}
	if _, err := s.Compress(t.Context(), "r", nil); err != nil {
		t.Fatal(err)
	}
	// The parts of all segments follow each other.
	segs, next := 0, spool.Seq(1)
	for next <= want[len(want)-1].Seq {
		parts := sift(t, s, "r", next-1, "absent")
		if len(parts) == 0 {
			t.Fatalf("no part has event %d", next)
		}
		for _, p := range parts {
			if p.Begin.Next != next || p.End.Next <= next || p.May {
				t.Fatalf("part %+v after event %d", p, next-1)
			}
			next = p.End.Next
		}
		segs++
	}
	if segs != 3 {
		t.Errorf("%d segments", segs)
	}
	for _, p := range sift(t, s, "r", 0, "INFO server") {
		if !p.May {
			t.Errorf("part %+v", p)
		}
	}
	// Readers that begin anywhere take their position from it.
	for seq := 1; seq < len(want); seq += 1 + len(want)/50 {
		j, err := s.Open("r")
		if err != nil {
			t.Fatal(err)
		}
		got, err := j.Read(nil, spool.Seq(seq), 5000)
		if err != nil || len(got) == 0 || !sameEvents(got, want[seq:seq+len(got)]) {
			t.Fatalf("read after %d: %d events, %v", seq, len(got), err)
		}
	}
}

// A sieve that is damaged is not used, and does not harm the log.
func TestDamagedSieveIsNotUsed(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	logLines(t, s, "r", 2<<20)
	want := all(t, s, "r")
	if _, err := s.Compress(t.Context(), "r", nil); err != nil {
		t.Fatal(err)
	}
	if len(sift(t, s, "r", 0, "absent")) == 0 {
		t.Fatal("there is no sieve")
	}
	segs, err := s.segments("r")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(segs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openSegment(segs[0].path)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := f.blocks.AppendNotes(nil)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	table := 4*int((f.blocks.Size()+128<<10-1)/(128<<10)) + 32
	at := len(whole) - table - len(notes)
	for _, i := range []int{0, 1, len(notes) / 2, len(notes) - 1} {
		whole[at+i] ^= 1
		if err := os.WriteFile(segs[0].path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		whole[at+i] ^= 1
		if parts := sift(t, s, "r", 0, "absent"); len(parts) > 0 {
			t.Errorf("byte %d changed: %d parts", i, len(parts))
		}
		if !sameEvents(all(t, s, "r"), want) {
			t.Errorf("byte %d changed: the log differs", i)
		}
	}
}
