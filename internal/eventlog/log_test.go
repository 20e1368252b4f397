package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// memTier is a tier in memory.
type memTier struct {
	mu     sync.Mutex
	events []spool.Event
	fail   error
}

func (m *memTier) Append(e *spool.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.events = append(m.events, *e)
	return nil
}

func (m *memTier) Read(dst []spool.Event, after spool.Seq, maxBytes int) ([]spool.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := 0
	for i := int(after); i < len(m.events); i++ {
		total += m.events[i].Size()
		if i > int(after) && total > maxBytes {
			break
		}
		dst = append(dst, m.events[i])
	}
	return dst, nil
}

func text(s string) spool.Event {
	return spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(s)}
}

// TestModel compares the log with a plain slice, with and without a tier, with
// little and much memory.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tier eventlog.Tier
		durable := rapid.Bool().Draw(t, "durable")
		if durable {
			tier = new(memTier)
		}
		log := eventlog.New(eventlog.Options{Run: "r", Tier: tier, Memory: rapid.IntRange(1, 4000).Draw(t, "memory")})
		var model []string
		closed := false
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				s := rapid.StringN(0, 300, -1).Draw(t, "s")
				seq, err := log.Append(text(s))
				if closed {
					if !errors.Is(err, eventlog.ErrSealed) {
						t.Fatalf("append after closed: %d, %v", seq, err)
					}
					return
				}
				model = append(model, s)
				if err != nil || seq != spool.Seq(len(model)) {
					t.Fatalf("append %d: %d, %v", len(model), seq, err)
				}
			},
			"close": func(t *rapid.T) {
				if closed || !rapid.Bool().Draw(t, "really") {
					t.Skip()
				}
				if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
					t.Fatal(err)
				}
				model = append(model, "")
				closed = true
			},
			"read": func(t *rapid.T) {
				after := rapid.IntRange(0, len(model)+2).Draw(t, "after")
				maxBytes := rapid.IntRange(0, 1000).Draw(t, "maxBytes")
				got, err := log.Read(spool.Seq(after), maxBytes)
				if err != nil {
					t.Fatal(err)
				}
				if after >= len(model) {
					if len(got) != 0 {
						t.Fatalf("%d events after the end", len(got))
					}
					return
				}
				if len(got) == 0 {
					t.Fatalf("no event after %d of %d", after, len(model))
				}
				if got[0].Kind == spool.KindTruncated {
					if durable {
						t.Fatal("a gap in a durable log")
					}
					var gap spool.Truncation
					if err := json.Unmarshal(got[0].Data, &gap); err != nil || gap.From != spool.Seq(after+1) || gap.To != got[0].Seq || len(got) != 1 {
						t.Fatalf("gap %+v, %v in %v", gap, err, got)
					}
					return
				}
				total := 0
				for i, e := range got {
					if e.Seq != spool.Seq(after+i+1) || string(e.Bytes) != model[after+i] || e.Run != "r" {
						t.Fatalf("event %d after %d is %+v, want %q", i, after, e, model[after+i])
					}
					total += e.Size()
				}
				if len(got) > 1 && total > maxBytes {
					t.Fatalf("%d bytes, limit %d", total, maxBytes)
				}
			},
		})
	})
}

func TestGapIsReportedOnce(t *testing.T) {
	log := eventlog.New(eventlog.Options{Run: "r", Memory: 1000})
	for i := range 50 {
		if _, err := log.Append(text(fmt.Sprintf("%03d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
		t.Fatal(err)
	}
	gaps, next := 0, spool.Seq(1)
	for e, err := range log.Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindTruncated {
			gaps++
			next = e.Seq + 1
			continue
		}
		if e.Seq != next {
			t.Fatalf("event %d, want %d", e.Seq, next)
		}
		next++
	}
	if gaps != 1 || next != 52 {
		t.Errorf("%d gaps, ended before %d", gaps, next)
	}
}

// TestFollowHammer has several writers append while many readers follow.
func TestFollowHammer(t *testing.T) {
	const writers, each, readers = 4, 2000, 50
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			o := eventlog.Options{Run: "r", Memory: 64 << 20}
			if durable {
				o.Tier, o.Memory = new(memTier), 10_000
			}
			log := eventlog.New(o)
			var readerWG, writerWG sync.WaitGroup
			sums := make([]int, readers)
			for i := range readers {
				readerWG.Go(func() {
					want := spool.Seq(1)
					for e, err := range log.Follow(t.Context(), 0) {
						if err != nil {
							t.Error(err)
							return
						}
						if e.Seq != want {
							t.Errorf("reader %d: event %d, want %d", i, e.Seq, want)
							return
						}
						want++
						sums[i] += len(e.Bytes)
					}
				})
			}
			for range writers {
				writerWG.Go(func() {
					for i := range each {
						if _, err := log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: make([]byte, i%10)}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			writerWG.Wait()
			if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
				t.Fatal(err)
			}
			readerWG.Wait()
			for i, n := range sums {
				if n != writers*each/10*45 {
					t.Errorf("reader %d got %d bytes", i, n)
				}
			}
		})
	}
}

// TestReadHammer reads at random cursors, from memory and from the tier, while
// the log grows and borrows memory.
func TestReadHammer(t *testing.T) {
	const events, readers = 5000, 4
	budget := eventlog.NewBudget(20_000)
	log := eventlog.New(eventlog.Options{Run: "r", Tier: new(memTier), Memory: 5000, Shared: budget, Forget: 90})
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for {
				last, sealed := log.Last()
				after := spool.Seq(random.Uint64N(uint64(last) + 1))
				got, err := log.Read(after, 1000)
				if err != nil || after < last && len(got) == 0 {
					t.Errorf("read after %d of %d: %d events, %v", after, last, len(got), err)
					return
				}
				got = append(slices.Clip(got), log.Recent(last-min(last, 5), 1000)...)
				for _, e := range got {
					if e.Kind == spool.KindOutput && string(e.Bytes) != content(e.Seq) {
						t.Errorf("event %d is %q", e.Seq, e.Bytes)
						return
					}
				}
				if sealed {
					return
				}
			}
		})
	}
	for seq := range spool.Seq(events) {
		if got, err := log.Append(text(content(seq + 1))); err != nil || got != seq+1 {
			t.Fatalf("append %d: %d, %v", seq+1, got, err)
		}
	}
	if n, err := log.AppendEnd(spool.Event{Kind: spool.KindExited}, spool.Event{Kind: spool.KindClosed}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	wg.Wait()
}

// content is the payload of the event with a seq in [TestReadHammer].
func content(seq spool.Seq) string { return strings.Repeat(string(rune('a'+seq%26)), int(seq%100)) }

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.New(eventlog.Options{Run: "r"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := log.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait on an empty log: %v", err)
		}
		woken := make(chan error, 1)
		go func() { woken <- log.Wait(t.Context(), 0) }()
		synctest.Wait()
		if _, err := log.Append(text("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Error(err)
		}
		if err := log.Wait(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
}

// TestFailedAppendLeavesNoHole checks that an event that the tier refuses is not
// visible, and that the next event gets its seq.
// What was dropped is read from the tier, and what comes after it from memory.
func TestDrop(t *testing.T) {
	tier := new(memTier)
	l := eventlog.New(eventlog.Options{Run: "r", Tier: tier})
	add := func(s string) {
		t.Helper()
		if _, err := l.Append(text(s)); err != nil {
			t.Fatal(err)
		}
	}
	add("a")
	add("b")
	if got := l.Recent(0, 1<<20); len(got) != 2 {
		t.Fatalf("%d events are in memory, want 2", len(got))
	}
	l.Drop()
	add("c")
	if got := l.Recent(1, 1<<20); len(got) != 0 {
		t.Errorf("%d events are in memory", len(got))
	}
	if got := l.Recent(2, 1<<20); len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("after the drop there are %v", got)
	}
	all, err := l.Read(0, 1<<20)
	if err != nil || len(all) != 3 || all[0].Run != "r" {
		t.Errorf("the log has %v, %v", all, err)
	}
}

func TestFailedAppendLeavesNoHole(t *testing.T) {
	tier := new(memTier)
	log := eventlog.New(eventlog.Options{Run: "r", Tier: tier})
	full := errors.New("no space")
	tier.fail = full
	if _, err := log.Append(text("lost")); !errors.Is(err, full) {
		t.Fatalf("append: %v", err)
	}
	if got, err := log.Read(0, 1000); len(got) != 0 || err != nil {
		t.Errorf("a refused event is visible: %v, %v", got, err)
	}
	tier.fail = nil
	if seq, err := log.Append(text("kept")); seq != 1 || err != nil {
		t.Errorf("append after it: %d, %v", seq, err)
	}
}

func TestTimeNeverStepsBack(t *testing.T) {
	now := time.Unix(1000, 0)
	log := eventlog.New(eventlog.Options{Run: "r", Now: func() time.Time { return now }})
	for _, at := range []int64{1000, 500, 2000} {
		now = time.Unix(at, 0)
		if _, err := log.Append(text("x")); err != nil {
			t.Fatal(err)
		}
	}
	events, err := log.Read(0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, e := range events {
		got = append(got, e.Time.Unix())
	}
	if diff := cmp.Diff([]int64{1000, 1000, 2000}, got); diff != "" {
		t.Error(diff)
	}
}
