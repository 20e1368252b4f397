package eventlog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// recordTier is a tier that has records, and counts how often they are read.
type recordTier struct {
	mu      sync.Mutex
	events  []spool.Event
	records [][]byte // of events
	reads   atomic.Int64
}

func (r *recordTier) Append(e *spool.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := record.Append(nil, e)
	r.events, r.records = append(r.events, *e), append(r.records, b)
	return err
}

func (r *recordTier) Read(dst []spool.Event, after spool.Seq, _ int) ([]spool.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(dst, r.events[after]), nil
}

func (r *recordTier) ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error) {
	r.reads.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	start := len(dst)
	for int(after) < len(r.records) && (len(dst) == start || len(dst)-start+len(r.records[after]) <= maxBytes) {
		dst = append(dst, r.records[after]...)
		after++
	}
	return dst, after, nil
}

// relayed returns a log of n events of a size, which are not in memory, and their
// records.
func relayed(t testing.TB, n, size int, c *Batches) (*Log, *recordTier, []byte) {
	t.Helper()
	tier := new(recordTier)
	l := New(Options{Run: "r", Tier: tier, Relays: c, Forget: 1})
	for i := range n {
		if _, err := l.Append(spool.Event{Kind: spool.KindOutput, Bytes: bytes.Repeat([]byte{byte(i)}, size)}); err != nil {
			t.Fatal(err)
		}
	}
	return l, tier, slices.Concat(tier.records...)
}

// next returns the next batch of a relay, and its bytes.
func next(t testing.TB, r *Relay, after spool.Seq) (*record.Batch, []byte, spool.Seq) {
	t.Helper()
	batch, last, err := r.Next(after)
	if err != nil {
		t.Fatal(err)
	}
	b, err := batch.Load()
	if err != nil || len(b) != batch.Size() {
		t.Fatalf("%d bytes of %d: %v", len(b), batch.Size(), err)
	}
	return batch, b, last
}

func TestRelaysReadOnce(t *testing.T) {
	l, tier, want := relayed(t, 20, 1000, NewBatches(1<<20))
	a, b := l.Relay(), l.Relay()
	defer a.Close()
	defer b.Close()
	_, of1, last := next(t, a, 0)
	_, of2, _ := next(t, b, 0)
	if last != 20 || !bytes.Equal(of1, want) || &of1[0] != &of2[0] {
		t.Errorf("up to %d: the same records %v, in the same memory %v", last, bytes.Equal(of1, want), &of1[0] == &of2[0])
	}
	// A cursor in the middle of a batch.
	_, rest, last := next(t, b, 7)
	if last != 20 || !bytes.Equal(rest, want[7*len(want)/20:]) {
		t.Errorf("after 7: %d bytes up to %d", len(rest), last)
	}
	if n := tier.reads.Load(); n != 1 {
		t.Errorf("the log was read %d times", n)
	}
}

func TestRelayAtTheEnd(t *testing.T) {
	l, _, _ := relayed(t, 3, 10, nil)
	r := l.Relay()
	defer r.Close()
	for _, after := range []spool.Seq{3, 9, ^spool.Seq(0)} {
		batch, last, err := r.Next(after)
		if batch.Size() != 0 || last != after || err != nil {
			t.Errorf("after %d: %d bytes up to %d, %v", after, batch.Size(), last, err)
		}
	}
}

// What is kept for relays is bounded in bytes, and in number for each log.
func TestBatchesAreBounded(t *testing.T) {
	const limit = 1 << 20
	c := NewBatches(limit)
	l, _, want := relayed(t, 64, record.BatchBytes/2, c)
	a, b := l.Relay(), l.Relay()
	defer b.Close()
	var got []byte
	for after := spool.Seq(0); after < 64; {
		var records []byte
		_, records, after = next(t, a, after)
		got = append(got, records...)
		if c.bytes > limit || len(l.relays.known) > maxBatches || len(c.spare) > maxSpare {
			t.Fatalf("%d bytes in %d batches are kept, and %d to be used again", c.bytes, len(l.relays.known), len(c.spare))
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other records")
	}
	if c.kept.Len() < 2 {
		t.Errorf("%d batches are kept", c.kept.Len())
	}
	a.Close()
	next(t, b, 0) // which has been dropped
	if c.kept.Len() > 0 {
		t.Errorf("%d batches are kept for one relay", c.kept.Len())
	}

	small, _, _ := relayed(t, 0, 0, c)
	x, y := small.Relay(), small.Relay()
	defer x.Close()
	defer y.Close()
	for i := range 3 * maxBatches {
		if _, err := small.Append(spool.Event{Kind: spool.KindOutput, Bytes: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		next(t, x, spool.Seq(i))
	}
	if n := len(small.relays.known); n != maxBatches || c.bytes > limit {
		t.Errorf("%d batches are kept, of %d bytes with the others", n, c.bytes)
	}
}

// A relay that waits holds nothing, and gets the same bytes again.
func TestRelayThatWaitsHoldsNothing(t *testing.T) {
	c := NewBatches(1) // keeps the last batch only
	l, tier, want := relayed(t, 8, record.BatchBytes-100, c)
	slow, fast := l.Relay(), l.Relay()
	defer slow.Close()
	defer fast.Close()
	batch, _, _ := next(t, slow, 0)
	batch.Drop()
	for after := spool.Seq(0); after < 8; {
		_, _, after = next(t, fast, after)
	}
	fast.Drop()
	if n := c.kept.Len(); n != 1 {
		t.Errorf("%d batches are kept", n)
	}
	before := tier.reads.Load()
	b, err := batch.Load()
	if err != nil || !bytes.Equal(b, want[:len(want)/8]) || tier.reads.Load() == before {
		t.Errorf("%d bytes, read again %v: %v", len(b), tier.reads.Load() > before, err)
	}
}

// Once no relay is left, nothing is.
func TestNoRelayNoBatches(t *testing.T) {
	c := NewBatches(1 << 20)
	l, _, _ := relayed(t, 20, 100_000, c)
	a, b := l.Relay(), l.Relay()
	for after := spool.Seq(0); after < 20; {
		_, _, after = next(t, a, after)
		next(t, b, 0)
	}
	a.Close()
	b.Close()
	if c.bytes != 0 || c.kept.Len() != 0 || len(l.relays.known) != 0 || len(c.spare) != 0 {
		t.Errorf("%d bytes in %d and %d batches, %d spare", c.bytes, c.kept.Len(), len(l.relays.known), len(c.spare))
	}
}

// A gap is not shared: where it begins depends on the cursor.
func TestRelaysAcrossAGap(t *testing.T) {
	l := New(Options{Run: "r", Memory: 1})
	for range 100 {
		if _, err := l.Append(spool.Event{Kind: spool.KindOutput, Bytes: make([]byte, 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := l.Relay(), l.Relay()
	defer a.Close()
	defer b.Close()
	for i, r := range []*Relay{a, b} {
		after := spool.Seq(3 * i)
		_, records, last := next(t, r, after)
		e, _, err := record.Decode(records)
		if err != nil || e.Kind != spool.KindTruncated || e.Seq != last {
			t.Fatalf("%v, %v", e, err)
		}
		want := []byte(`"from":` + string(rune('1'+after)))
		if !bytes.Contains(e.Data, want) {
			t.Errorf("after %d: %s", after, e.Data)
		}
	}
}

// Many relays read a log that grows, each at its own pace.
func TestRelaysOfALiveLog(t *testing.T) {
	const n = 300
	c := NewBatches(2 * record.BatchBytes)
	l, tier, _ := relayed(t, 0, 0, c)
	var wg sync.WaitGroup
	got := make([][]byte, 16)
	for i := range got {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			r := l.Relay()
			defer r.Close()
			for after := spool.Seq(0); after < n; {
				if err := l.Wait(t.Context(), after); err != nil {
					t.Error(err)
					return
				}
				batch, last, err := r.Next(after)
				if err != nil {
					t.Error(err)
					return
				}
				for range random.IntN(3) {
					batch.Drop()
					if _, err := batch.Load(); err != nil {
						t.Error(err)
						return
					}
				}
				b, err := batch.Load()
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = append(got[i], b...)
				after = last
			}
		})
	}
	for i := range n {
		if _, err := l.Append(spool.Event{Kind: spool.KindOutput, Bytes: bytes.Repeat([]byte{byte(i)}, i*20)}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	want := slices.Concat(tier.records...)
	for i := range got {
		if !bytes.Equal(got[i], want) {
			t.Errorf("relay %d got %d bytes, want %d", i, len(got[i]), len(want))
		}
	}
	if c.bytes != 0 || c.relays != 0 {
		t.Errorf("%d bytes are left of %d relays", c.bytes, c.relays)
	}
}

// A relay that is alone uses its memory again.
func BenchmarkRelayAlone(b *testing.B) {
	l, _, _ := relayed(b, 16, 100_000, NewBatches(DefaultBatches))
	r := l.Relay()
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		for after := spool.Seq(0); after < 16; {
			_, _, after = next(b, r, after)
		}
	}
}

// fileTier is a tier that has its records in one file.
type fileTier struct {
	recordTier
	path string
}

func (f *fileTier) OpenRecords(first spool.Seq, _ int) (*os.File, int64) {
	at := int64(0)
	for _, r := range f.records[:first-1] {
		at += int64(len(r))
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, 0
	}
	return file, at
}

// A relay finds its records in a file if they came from it, also in the middle of a
// batch that another relay has read.
func TestRelayOfRecordsInAFile(t *testing.T) {
	tier := &fileTier{path: filepath.Join(t.TempDir(), "records")}
	l := New(Options{Run: "r", Tier: tier, Forget: 1})
	for i := range 20 {
		if _, err := l.Append(spool.Event{Kind: spool.KindOutput, Bytes: bytes.Repeat([]byte{byte(i)}, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tier.path, slices.Concat(tier.records...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, after := range []spool.Seq{0, 7} {
		r := l.Relay()
		defer r.Close()
		batch, want, _ := next(t, r, after)
		f, at := batch.File()
		if f == nil {
			t.Fatalf("no file after %d", after)
		}
		defer f.Close()
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, at); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the file has other records after %d: %v", after, err)
		}
		batch.Drop()
		if f, _ := batch.File(); f != nil {
			t.Errorf("a file of a batch that was dropped")
		}
	}
	plain, _, _ := relayed(t, 3, 10, nil)
	r := plain.Relay()
	defer r.Close()
	batch, _, _ := next(t, r, 0)
	if f, _ := batch.File(); f != nil {
		t.Error("a file of a tier without files")
	}
}

// A relay whose records are removed while it waits says so.
func TestRelayOfRecordsThatAreGone(t *testing.T) {
	l, tier, _ := relayed(t, 4, 100, nil)
	r := l.Relay()
	defer r.Close()
	batch, _, _ := next(t, r, 0)
	batch.Drop()
	tier.mu.Lock()
	tier.records = tier.records[:2]
	tier.mu.Unlock()
	if _, err := batch.Load(); !errors.Is(err, record.ErrChanged) {
		t.Errorf("%v, want %v", err, record.ErrChanged)
	}
	if _, b, last := next(t, r, 0); last != 2 || len(b) == 0 {
		t.Errorf("%d bytes up to %d", len(b), last)
	}
}
