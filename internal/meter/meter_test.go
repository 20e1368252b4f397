package meter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/meter"
)

func limits(n int64, p string) *spool.Limits {
	return &spool.Limits{OutputBytes: n, OutputPolicy: p}
}

func TestWithinLimit(t *testing.T) {
	for _, policy := range []string{meter.Truncate, meter.Block, meter.Stop} {
		var m meter.Meter
		m.Reset(limits(10, policy))
		var log []spool.Event
		for _, part := range []string{"01234", "56789"} {
			if _, exceeds := m.Add(spool.Stdout, []byte(part)); exceeds {
				t.Errorf("%s: the limit itself exceeds the limit", policy)
			}
		}
		m.Flush(func(e spool.Event) { log = append(log, e) })
		for _, e := range log {
			if e.Kind != spool.KindOutput {
				t.Errorf("%s: event %s", policy, e.Kind)
			}
		}
	}
}

func TestStop(t *testing.T) {
	var m meter.Meter
	m.Reset(limits(4, meter.Stop))
	if n, exceeds := m.Add(spool.Stdout, []byte("abcdef")); n != 4 || !exceeds {
		t.Errorf("%d, %v", n, exceeds)
	}
	if n, exceeds := m.Add(spool.Stderr, []byte("gh")); n != 0 || exceeds {
		t.Errorf("after the limit: %d, %v", n, exceeds)
	}
	var log []spool.Event
	m.Flush(func(e spool.Event) { log = append(log, e) })
	want := []spool.Event{{Kind: spool.KindTruncated, Data: json.RawMessage(`{"dropped_bytes":{"stderr":2,"stdout":2},"limit_bytes":4}`)}}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Error(diff)
	}
}

func TestBlock(t *testing.T) {
	var m meter.Meter
	m.Reset(limits(4, meter.Block))
	m.Add(spool.Stdout, []byte("abc"))
	if room := m.Room(); room != 1 {
		t.Fatalf("room for %d, want 1", room)
	}
	m.Add(spool.Stdout, []byte("d"))
	if room := m.Room(); room != 0 {
		t.Fatalf("room for %d, want none", room)
	}
	if n, exceeds := m.Add(spool.Stdout, []byte("!")); n != 0 || exceeds || m.Room() > 0 {
		t.Errorf("a byte too many: %d logged, %v, room for %d", n, exceeds, m.Room())
	}
	m.Exceed()
	if n, exceeds := m.Add(spool.Stdout, []byte("ef")); n != 0 || exceeds || m.Room() < 1<<40 {
		t.Errorf("what is read after the limit: %d logged, %v", n, exceeds)
	}
	m.Reset(limits(4, meter.Block))
	if room := m.Room(); room != 4 {
		t.Errorf("room for %d after a reset", room)
	}
}

func TestText(t *testing.T) {
	for policy, want := range map[string]string{
		meter.Stop: "the cell is stopped", meter.Block: "no more output of this cell", meter.Truncate: "last 50 bytes",
	} {
		var m meter.Meter
		m.Reset(limits(100, policy))
		if text := m.Text("cell"); !strings.Contains(text, want) || !strings.Contains(text, "100 bytes") {
			t.Errorf("%s: %q", policy, text)
		}
	}
}

// Head, tail and dropped bytes are the whole output, whatever its pieces.
func TestTruncate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		var m meter.Meter
		m.Reset(limits(int64(limit), meter.Truncate))
		var all, logged []byte
		passed := 0
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			b := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "bytes")
			n, exceeds := m.Add(spool.Stdout, b)
			if exceeds {
				passed++
			}
			all, logged = append(all, b...), append(logged, b[:n]...)
		}
		head := len(logged)
		var dropped int64
		m.Flush(func(e spool.Event) {
			if e.Kind == spool.KindTruncated {
				var tr spool.Truncation
				if err := json.Unmarshal(e.Data, &tr); err != nil {
					t.Fatal(err)
				}
				dropped += tr.DroppedBytes[spool.Stdout]
			}
			logged = append(logged, e.Bytes...)
		})
		over := len(all) > limit
		if want := min(len(all), limit); len(logged) != want || dropped != int64(len(all)-want) || (passed == 1) != over || passed > 1 {
			t.Fatalf("of %d bytes %d logged, %d dropped, limit passed %d times", len(all), len(logged), dropped, passed)
		}
		want := append(all[:head:head], all[len(all)-(len(logged)-head):]...)
		if diff := cmp.Diff(want, logged); diff != "" && len(want) > 0 {
			t.Fatal(diff)
		}
	})
}
