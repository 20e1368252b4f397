package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// log returns the records of a short log.
func log(f *testing.F) []byte {
	f.Helper()
	var b []byte
	for i, e := range []spool.Event{
		{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("hello\n")},
		{Kind: spool.KindTruncated, Data: []byte(`{"from":2,"to":5}`)},
		{Kind: spool.KindDone, Turn: 1, Data: []byte(`{"outcome":"ok"}`), Bytes: []byte{0xff}},
		{Kind: spool.KindClosed},
	} {
		e.Seq, e.Time = spool.Seq(i+1), time.Unix(1794704523, 5)
		var err error
		if b, err = record.Append(b, &e); err != nil {
			f.Fatal(err)
		}
	}
	return b
}

// summed returns b as one record with the right size and checksum, which a
// fuzzer does not find by itself.
func summed(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) >= record.HeaderSize {
		binary.LittleEndian.PutUint32(b, uint32(len(b)))
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

// FuzzDecodeRecord checks that a record that decodes is within its bytes, and
// that its event encodes to the same record.
func FuzzDecodeRecord(f *testing.F) {
	good := log(f)
	f.Add(good)
	f.Add(good[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		checkRecord(t, b)
		checkRecord(t, summed(b))
	})
}

func checkRecord(t *testing.T, b []byte) {
	t.Helper()
	e, n, err := record.Decode(b)
	if err != nil {
		if !errors.Is(err, record.ErrShort) && !errors.Is(err, record.ErrCorrupt) {
			t.Fatalf("%v is no error of a record", err)
		}
		return
	}
	if n < record.HeaderSize || n > len(b) || record.HeaderSize+e.Size() != n {
		t.Fatalf("an event of %d bytes in a record of %d, of %d", e.Size(), n, len(b))
	}
	if _, _, err := record.Decode(b[:n-1]); !errors.Is(err, record.ErrShort) {
		t.Fatalf("a record that is cut: %v", err)
	}
	again, err := record.Append(nil, &e)
	if err != nil {
		if !strings.Contains(err.Error(), "unknown") { // of a later version
			t.Fatal(err)
		}
		return
	}
	back, _, err := record.Decode(again)
	if diff := cmp.Diff(e, back); err != nil || diff != "" {
		t.Fatalf("%v\n%s", err, diff)
	}
	if b[26]|b[27] == 0 && !bytes.Equal(again, b[:n]) {
		t.Fatalf("%x encodes to %x", b[:n], again)
	}
}

// FuzzBatch checks that a batch of records is divided at the ends of records,
// and that its events come in order.
func FuzzBatch(f *testing.F) {
	good := log(f)
	f.Add(good, uint64(0), int64(len(good)))
	f.Add(good[:len(good)-1], uint64(0), int64(60))
	f.Add(good, uint64(3), int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, after uint64, limit int64) {
		fit, err := record.Fit(b, limit)
		if err == nil {
			whole := 0
			for whole < fit {
				n, err := record.Size(b[whole:])
				if err != nil {
					t.Fatal(err)
				}
				if whole > 0 && int64(whole+n) > limit {
					t.Fatalf("%d bytes do not fit into %d", whole+n, limit)
				}
				whole += n
			}
			if whole != fit || fit > len(b) || fit == 0 && len(b) > 0 {
				t.Fatalf("%d of %d bytes fit", fit, len(b))
			}
		}
		last, closed, err := record.Last(b, spool.Seq(after))
		if err != nil {
			return
		}
		if last < spool.Seq(after) || len(b) > 0 && last == spool.Seq(after) || len(b) == 0 && closed {
			t.Fatalf("the last event after %d is %d, closed: %v", after, last, closed)
		}
	})
}

// FuzzDescription checks that a description is found only in a record that has
// one, and encodes to the same description.
func FuzzDescription(f *testing.F) {
	info := spool.Info{ID: "r", Engine: "process", Argv: []string{"true"}, Labels: map[string]string{"a": "b"}, Created: time.Unix(1, 0).UTC(), State: spool.StateRunning}
	for _, place := range []record.Place{record.AtHead, record.Between, record.AtEnd} {
		b, err := record.AppendDescription(nil, place, 7, time.Unix(2, 0), &info)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < record.HeaderSize {
			return
		}
		b = summed(b)
		h, err := record.ParseHead(b)
		if err != nil {
			return
		}
		if (h.Seq == 0) != (h.Place != 0) || h.Size < record.HeaderSize || h.Size > record.MaxSize {
			t.Fatalf("%+v", h)
		}
		e, n, err := record.Decode(b)
		if err != nil || h.Place == 0 {
			return
		}
		if n != h.Size || e.Seq != h.Seq || uint64(e.Turn) != h.Salt {
			t.Fatalf("the head %+v is not that of %+v", h, e)
		}
		info, err := record.DecodeDescription(e.Data, "r")
		if err != nil {
			return
		}
		again, err := record.AppendDescription(nil, h.Place, h.Salt, e.Time, &info)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := record.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		same, err := record.DecodeDescription(back.Data, "r")
		if diff := cmp.Diff(string(info.AppendJSON(nil)), string(same.AppendJSON(nil))); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
