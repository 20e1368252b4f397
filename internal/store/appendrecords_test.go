package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// TestAppendRecords copies a log as records: the other log has the same ones, in segments of
// its own, and refuses what does not follow or is damaged.
func TestAppendRecords(t *testing.T) {
	from := create(t, openStore(t, t.TempDir(), Options{}), "r")
	want := appendSizes(t, from, 1, 100, 5000, 0, 70, 3000, 2000, 10)
	all, last, err := from.ReadRecords(nil, 0, 1<<20)
	if err != nil || last != 8 {
		t.Fatal(last, err)
	}
	for _, cut := range []int{1, 2, 8} {
		s := openStore(t, t.TempDir(), Options{SegmentBytes: 4000})
		j := create(t, s, "r")
		rest := all
		for len(rest) > 0 { // in parts of so many records
			size := 0
			for i := 0; i < cut && size < len(rest); i++ {
				n, err := record.Size(rest[size:])
				if err != nil {
					t.Fatal(err)
				}
				size += n
			}
			if err := j.AppendRecords(rest[:size]); err != nil {
				t.Fatal(err)
			}
			rest = rest[size:]
		}
		wantEvents(t, "r", readAll(t, j, 1<<20), want)
		if segs, err := s.segments("r"); err != nil || len(segs) < 3 {
			t.Errorf("%d segments, %v", len(segs), err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		again, lost, err := s.Recover("r")
		if err != nil || lost.Bytes != 0 {
			t.Fatal(lost, err)
		}
		if info := again.Info(); info.Last != 8 || info.Bytes != from.Info().Bytes {
			t.Errorf("the copy is %+v", info)
		}
		if err := again.AppendRecords(all); err == nil {
			t.Error("the same events are taken again")
		}
		bad := bytes.Clone(all)
		bad[len(bad)-1] ^= 1
		e := output(9, []byte("good"))
		good, err := record.Append(nil, &e)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.AppendRecords(append(good, bad[len(bad)-50:]...)); !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrShort) {
			t.Errorf("a damaged record: %v", err)
		}
		wantEvents(t, "r", readAll(t, again, 1<<20), append(want[:8:8], e))
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAppendRecordsOfAGap leaves out what the other log has lost.
func TestAppendRecordsOfAGap(t *testing.T) {
	j := create(t, openStore(t, t.TempDir(), Options{}), "r")
	data, _ := json.Marshal(spool.Truncation{From: 2, To: 7})
	var b []byte
	for _, e := range []spool.Event{output(1, []byte("one")), {Seq: 7, Time: epoch, Kind: spool.KindTruncated, Data: data}, output(8, []byte("eight"))} {
		var err error
		if b, err = record.Append(b, &e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.AppendRecords(b); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, j, 1<<20)
	var gap spool.Truncation
	if len(got) != 3 || got[1].Kind != spool.KindTruncated || json.Unmarshal(got[1].Data, &gap) != nil || gap.From != 2 || gap.To != 7 || got[2].Seq != 8 {
		t.Errorf("the log has %+v", got)
	}
}
