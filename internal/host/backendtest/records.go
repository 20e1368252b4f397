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
// that a reader gets, live and afterwards, from any cursor, whether or not the
// relay gives a batch back before it uses it.
func relaysRecords(t *testing.T, b spool.Backend) {
	if _, ok := b.(record.Follower); !ok {
		t.Fatalf("%T does not implement record.Follower", b)
	}
	spec := sh("echo ready; read x; i=0; while [ $i -lt 200 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done; head -c 700000 /dev/zero")
	spec.Stdin = true
	r := start(t, b, spec)
	relay := func(after spool.Seq, drop bool, each func()) []spool.Event {
		t.Helper()
		var events []spool.Event
		for got, err := range record.Follow(t.Context(), b, r.ID(), after) {
			if err != nil {
				t.Fatal(err)
			}
			if drop {
				got.Drop()
			}
			records, err := got.Load()
			if err != nil || len(records) == 0 || len(records) != got.Size() {
				t.Fatalf("a batch of %d bytes has %d: %v", got.Size(), len(records), err)
			}
			for rest := records; len(rest) > 0; {
				e, n, err := record.Decode(rest)
				if err != nil {
					t.Fatal(err)
				}
				e.Run, e.Bytes, e.Data = r.ID(), slices.Clone(e.Bytes), slices.Clone(e.Data)
				events, rest = append(events, e), rest[n:]
			}
			each()
		}
		return events
	}
	live := relay(0, true, func() {
		if err := r.Stdin(t.Context()).Close(); err != nil && !errors.Is(err, spool.ErrInputClosed) {
			t.Error(err)
		}
	})
	events := collect(t, r)
	if diff := diffEvents(events, live); diff != "" {
		t.Errorf("live: %s", diff)
	}
	for _, drop := range []bool{false, true} {
		for _, after := range []int{0, 7, len(events) - 1, len(events)} {
			if diff := diffEvents(events[after:], relay(spool.Seq(after), drop, func() {})); diff != "" {
				t.Errorf("after %d, given back %v: %s", after, drop, diff)
			}
		}
	}
	for _, after := range []int{0, 7, len(events)} {
		var lent []spool.Event
		for e, err := range r.Stream(t.Context(), spool.Seq(after)) {
			if err != nil {
				t.Fatal(err)
			}
			e.Bytes, e.Data = slices.Clone(e.Bytes), slices.Clone(e.Data)
			lent = append(lent, e)
		}
		if diff := diffEvents(events[after:], lent); diff != "" {
			t.Errorf("lent events after %d: %s", after, diff)
		}
	}
	for _, err := range record.Follow(t.Context(), b, "nobody", 0) {
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
