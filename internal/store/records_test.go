package store

import (
	"bytes"
	"testing"

	"github.com/spool-run/spool"
)

// OpenRecords finds what ReadRecords has returned in a file, which keeps it, until the
// segment is compressed or gone.
func TestOpenRecords(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 512 << 10})
	logLines(t, s, "r", 2<<20)
	j, err := s.Open("r")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	last, _ := j.Last()
	same := func() (parts int) {
		for after := spool.Seq(0); after < last; {
			records, next, err := j.ReadRecords(nil, after, 100<<10)
			if err != nil || next <= after {
				t.Fatalf("records after %d: up to %d, %v", after, next, err)
			}
			if f, at := j.OpenRecords(after+1, len(records)); f != nil {
				got := make([]byte, len(records))
				if _, err := f.ReadAt(got, at); err != nil || !bytes.Equal(got, records) {
					t.Errorf("the file has other records after %d: %v", after, err)
				}
				_ = f.Close()
				parts++
			}
			after = next
		}
		return parts
	}
	if n := same(); n < 20 {
		t.Errorf("%d parts are in files", n)
	}
	for _, seq := range []spool.Seq{0, last + 1, last + 100} {
		if f, _ := j.OpenRecords(seq, 1); f != nil {
			t.Errorf("a file has event %d", seq)
		}
	}
	if f, _ := j.OpenRecords(1, 1<<20); f != nil {
		t.Error("a file has more than its segment")
	}

	records, _, err := j.ReadRecords(nil, 0, 100<<10)
	if err != nil {
		t.Fatal(err)
	}
	f, at := j.OpenRecords(1, len(records))
	if f == nil {
		t.Fatal("no file")
	}
	defer f.Close()
	if _, err := s.Compress(t.Context(), "r", nil); err != nil {
		t.Fatal(err)
	}
	if n := same(); n != 0 {
		t.Errorf("%d parts are in compressed files as they are", n)
	}
	if err := s.Remove("r"); err != nil {
		t.Fatal(err)
	}
	if f, _ := j.OpenRecords(1, 1); f != nil {
		t.Error("a file has events of a run that was removed")
	}
	got := make([]byte, len(records))
	if _, err := f.ReadAt(got, at); err != nil || !bytes.Equal(got, records) {
		t.Errorf("the open file has other records: %v", err)
	}
}
