package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// FuzzSegment checks that reading a file of any bytes ends in events or an
// error, and that recovery keeps a prefix of the file and counts the rest as
// cut. With sums, the records of the file get the right checksums, which a
// fuzzer does not find by itself.
func FuzzSegment(f *testing.F) {
	for _, seal := range []bool{false, true} {
		_, files := writeLog(f, 0, seal)
		whole := files[sortedKeys(files)[0]]
		f.Add(whole, seal)
		f.Add(whole[:len(whole)/2], seal)
		huge := append([]byte(nil), whole...)
		copy(huge[len(segmentMagic):], []byte{0xff, 0xff, 0xff, 0})
		f.Add(huge, seal)
	}
	f.Add([]byte(segmentMagic), false)
	s, err := Open(f.TempDir(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, sums bool) {
		if sums {
			b = summed(b)
		}
		path := filepath.Join(s.runsDir(), "r.00000000000000000001.seg")
		mustWrite(t, path, b)
		for range s.List() {
			continue
		}
		if j, err := s.Open("r"); err == nil {
			checkReadable(t, j, len(b))
		}
		if !bytes.Equal(mustRead(t, path), b) {
			t.Fatal("reading has changed the file")
		}
		j, cut, err := s.Recover("r")
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatal(err)
			}
			if !bytes.Equal(mustRead(t, path), b) {
				t.Fatal("a file that cannot be recovered has changed")
			}
			return
		}
		defer j.Close()
		if kept := len(b) - int(cut.Bytes); kept < 0 || !bytes.HasPrefix(mustRead(t, path), b[:kept]) || (cut.Bytes > 0) != (cut.Reason != "") {
			t.Fatalf("of %d bytes %+v were cut", len(b), cut)
		}
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

// summed returns a segment with the right checksums in all records and in the
// footer.
func summed(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < len(segmentMagic) {
		return b
	}
	for rest := b[len(segmentMagic):]; len(rest) >= record.HeaderSize; {
		n, err := record.Size(rest)
		if err != nil || n > len(rest) {
			break
		}
		binary.LittleEndian.PutUint32(rest[4:], crc32.Checksum(rest[8:n], castagnoli))
		rest = rest[n:]
	}
	if end := b[max(0, len(b)-footerSize):]; len(end) == footerSize && string(end[16:]) == footerMagic {
		binary.LittleEndian.PutUint32(end[4:], footerSum(end))
	}
	return b
}

// FuzzDamage damages a good log: it is cut, and a part of it is overwritten. The
// events that can still be read are the first of the log, unchanged, and a log
// that lost some says so.
func FuzzDamage(f *testing.F) {
	events, files := writeLog(f, 0, true)
	whole := files[sortedKeys(files)[0]]
	f.Add(uint16(0), uint16(0), []byte(nil))
	f.Add(uint16(1), uint16(0), []byte(nil))
	f.Add(uint16(footerSize), uint16(200), []byte{0})
	f.Add(uint16(0), uint16(len(whole)-4), []byte("XEND"))
	s, err := Open(f.TempDir(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	for i := range events { // as they are read
		events[i].Run = "r"
		if len(events[i].Bytes) == 0 {
			events[i].Bytes = nil
		}
	}
	f.Fuzz(func(t *testing.T, cut, at uint16, over []byte) {
		b := bytes.Clone(whole[:len(whole)-int(cut)%len(whole)])
		copy(b[int(at)%len(b):], over)
		path := filepath.Join(s.runsDir(), "r.00000000000000000001.seg")
		mustWrite(t, path, b)
		defer os.Remove(path)
		j, said, err := s.Recover("r")
		if err != nil {
			return // it is refused
		}
		defer j.Close()
		last, sealed := j.Last()
		if last < spool.Seq(len(events)) && len(b) == len(whole) && said.Bytes == 0 {
			t.Fatalf("%d of %d events are left, and nothing was cut", last, len(events))
		}
		var after spool.Seq
		var failed error
		for after < last {
			page, err := j.Read(nil, after, 1<<20)
			if err != nil || len(page) == 0 {
				failed = err
				break
			}
			if diff := cmp.Diff(events[after:int(after)+len(page)], page, cmp.Comparer(sameTime)); diff != "" {
				t.Fatalf("events after %d: %s", after, diff)
			}
			after += spool.Seq(len(page))
		}
		if (after != last) != (failed != nil) || failed != nil && !sealed {
			t.Fatalf("%d events of %d: %v", after, last, failed)
		}
	})
}

func sameTime(a, b time.Time) bool { return a.Equal(b) }

// FuzzSegmentName checks that a file name that names a segment is the name that
// the segment gets.
func FuzzSegmentName(f *testing.F) {
	f.Add("r.00000000000000000001.seg")
	f.Add("r.18446744073709551615.seg")
	f.Add("../r.00000000000000000001.seg")
	f.Fuzz(func(t *testing.T, name string) {
		id, first, ok := parseName(name)
		if ok && newSegment("dir", id, first).path != filepath.Join("dir", name) {
			t.Errorf("%q is segment %d of run %q", name, first, id)
		}
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
