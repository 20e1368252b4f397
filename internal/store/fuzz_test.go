package store

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Reading a file of any bytes ends in events or an error.
func FuzzSegment(f *testing.F) {
	for _, seal := range []bool{false, true} {
		_, files := writeLog(f, 0, seal)
		whole := files[sortedKeys(files)[0]]
		f.Add(whole)
		f.Add(whole[:len(whole)/2])
		huge := append([]byte(nil), whole...)
		copy(huge[len(segmentMagic):], []byte{0xff, 0xff, 0xff, 0})
		f.Add(huge)
	}
	f.Add([]byte(segmentMagic))
	s, err := Open(f.TempDir(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(s.runsDir(), "r.00000000000000000001.seg")
		mustWrite(t, path, b)
		for range s.List() {
			continue
		}
		if j, err := s.Open("r"); err == nil {
			checkReadable(t, j, len(b))
		}
		j, _, err := s.Recover("r")
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatal(err)
			}
			return
		}
		defer j.Close()
		last, sealed := j.Last()
		if !sealed {
			e := output(last+1, []byte("more"))
			if err := j.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
		checkReadable(t, j, len(b)+1000)
	})
}

// checkReadable reads to the end or an error, and expects no more pages than a
// file of this size can hold.
func checkReadable(t *testing.T, j *Journal, size int) {
	t.Helper()
	after := spool.Seq(0)
	for n := 0; ; n++ {
		page, err := j.Read(nil, after, 100)
		if err != nil || len(page) == 0 {
			return
		}
		for _, e := range page {
			if e.Seq <= after {
				t.Fatalf("event %d after %d", e.Seq, after)
			}
			after = e.Seq
		}
		if n*record.HeaderSize > size {
			t.Fatalf("%d pages out of %d bytes", n, size)
		}
	}
}
