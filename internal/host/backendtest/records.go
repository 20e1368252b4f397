package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// relaysRecords checks that a relay of records passes on exactly the events
// that a reader gets, live and afterwards, from any cursor, and may write into
// every batch.
func relaysRecords(t *testing.T, b spool.Backend) {
	if _, ok := b.(record.Follower); !ok {
		t.Fatalf("%T does not implement record.Follower", b)
	}
	spec := sh("echo ready; read x; i=0; while [ $i -lt 200 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done; head -c 700000 /dev/zero")
	spec.Stdin = true
	r := start(t, b, spec)
	relay := func(after spool.Seq, head int, batch func()) []spool.Event {
		t.Helper()
		var events []spool.Event
		for records, err := range record.Follow(t.Context(), b, r.ID(), after, head) {
			if err != nil {
				t.Fatal(err)
			}
			if len(records) <= head {
				t.Fatalf("a batch of %d bytes, %d of them before its records", len(records), head)
			}
			for rest := records[head:]; len(rest) > 0; {
				e, n, err := record.Decode(rest)
				if err != nil {
					t.Fatal(err)
				}
				e.Run, e.Bytes, e.Data = r.ID(), slices.Clone(e.Bytes), slices.Clone(e.Data)
				events, rest = append(events, e), rest[n:]
			}
			clear(records)
			batch()
		}
		return events
	}
	live := relay(0, 5, func() {
		if err := r.Stdin(t.Context()).Close(); err != nil && !errors.Is(err, spool.ErrInputClosed) {
			t.Error(err)
		}
	})
	events := collect(t, r)
	if diff := diffEvents(events, live); diff != "" {
		t.Errorf("live: %s", diff)
	}
	for _, head := range []int{0, 5, 64} {
		for _, after := range []int{0, 7, len(events) - 1, len(events)} {
			if diff := diffEvents(events[after:], relay(spool.Seq(after), head, func() {})); diff != "" {
				t.Errorf("after %d with %d bytes before: %s", after, head, diff)
			}
		}
	}
	for _, err := range record.Follow(t.Context(), b, "nobody", 0, 0) {
		wantErr(t, "records of an unknown run", err, spool.ErrNotFound)
	}
}

// diffEvents returns the first difference between events, or "". Unlike [cmp.Diff]
// it does not look at each byte of large events by reflection.
func diffEvents(want, got []spool.Event) string {
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		same := bytes.Equal(w.Bytes, g.Bytes) && (w.Bytes == nil) == (g.Bytes == nil)
		if !same {
			return fmt.Sprintf("event %d of %d has %d bytes, want the %d of event %d", g.Seq, len(got), len(g.Bytes), len(w.Bytes), w.Seq)
		}
		w.Bytes, g.Bytes = nil, nil
		if diff := cmp.Diff(w, g); diff != "" {
			return fmt.Sprintf("event %d: %s", w.Seq, diff)
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d events, want %d", len(got), len(want))
	}
	return ""
}
