package record_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

func TestRecordRoundTrip(t *testing.T) {
	events := []spool.Event{
		{Seq: 1, Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: []byte("a\x00\xff")},
		{Seq: 1 << 60, Kind: spool.KindNotice, Turn: 9, Data: json.RawMessage(`{"code":"x"}`), Bytes: []byte("raw")},
		{Seq: 3, Kind: spool.KindClosed},
	}
	var b []byte
	for i := range events {
		events[i].Time = time.Unix(1, int64(i)).UTC()
		var err error
		if b, err = record.Append(b, &events[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range events {
		got, n, err := record.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record %d: %s", i, diff)
		}
		b = b[n:]
	}
	if len(b) != 0 {
		t.Errorf("%d bytes left", len(b))
	}
	for _, bad := range []spool.Event{{Kind: "nonsense"}, {Kind: spool.KindOutput, Stream: "nowhere"}, {Kind: spool.KindOutput, Bytes: make([]byte, spool.MaxEventBytes+1)}} {
		if _, err := record.Append(nil, &bad); err == nil {
			t.Errorf("%q on %q of %d bytes was encoded", bad.Kind, bad.Stream, len(bad.Bytes))
		}
	}
}
