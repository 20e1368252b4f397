package eventlog

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
)

func TestWatch(t *testing.T) {
	l := New(Options{Run: "r"})
	var early, late, end int
	l.Watch(0, func() { early++ })
	l.Watch(1, func() { late++ })
	l.Watch(100, func() { end++ })
	check := func(what string, wantEarly, wantLate, wantEnd int) {
		t.Helper()
		if early != wantEarly || late != wantLate || end != wantEnd {
			t.Errorf("%s: called %d, %d and %d times, want %d, %d and %d", what, early, late, end, wantEarly, wantLate, wantEnd)
		}
	}
	check("before any event", 0, 0, 0)
	for i, want := range [][3]int{{1, 0, 0}, {1, 1, 0}, {1, 1, 0}} {
		if _, err := l.Append(spool.Event{Kind: spool.KindOutput}); err != nil {
			t.Fatal(err)
		}
		check("after event "+string(rune('1'+i)), want[0], want[1], want[2])
	}
	l.Watch(2, func() { early++ })
	check("when the event is there", 2, 1, 0)
	if _, err := l.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
		t.Fatal(err)
	}
	check("when it is closed", 2, 1, 1)
	l.Watch(100, func() { end++ })
	check("after that", 2, 1, 2)
}

// A watch that is stopped is not called, and the others are.
func TestWatchStops(t *testing.T) {
	l := New(Options{Run: "r"})
	called := ""
	watch := func(name string) func() { return l.Watch(0, func() { called += name }) }
	stopA, stopB, _ := watch("a"), watch("b"), watch("c")
	stopB()
	stopB()
	if _, err := l.Append(spool.Event{Kind: spool.KindOutput}); err != nil {
		t.Fatal(err)
	}
	stopA()
	watch("d")()
	if called != "acd" || l.waker.watching.Load() != 0 {
		t.Errorf("%q were called, %d are left", called, l.waker.watching.Load())
	}
}

// brokenTier accepts room events and then fails.
type brokenTier struct{ room int }

var errFull = errors.New("full")

func (t *brokenTier) Append(*spool.Event) error {
	if t.room == 0 {
		return errFull
	}
	t.room--
	return nil
}

func (t *brokenTier) Read(dst []spool.Event, _ spool.Seq, _ int) ([]spool.Event, error) {
	return dst, nil
}

// The last two events become visible together, or as many as the tier accepts.
func TestAppendEnd(t *testing.T) {
	for room := range 3 {
		l := New(Options{Run: "r", Tier: &brokenTier{room}})
		var last spool.Seq
		var sealed bool
		l.Watch(0, func() { last, sealed = l.Last() })
		n, err := l.AppendEnd(spool.Event{Kind: spool.KindExited}, spool.Event{Kind: spool.KindClosed})
		if n != room || (err == nil) != (room == 2) || err != nil && !errors.Is(err, errFull) {
			t.Errorf("room for %d: %d are in the log, %v", room, n, err)
		}
		if last != spool.Seq(room) || sealed != (room == 2) {
			t.Errorf("room for %d: the watch sees event %d first, closed is %v", room, last, sealed)
		}
		events, err := l.Read(0, 1<<20)
		if err != nil || len(events) != room {
			t.Fatalf("room for %d: read %d events, %v", room, len(events), err)
		}
		for i, e := range events {
			if e.Seq != spool.Seq(i+1) {
				t.Errorf("event %d has seq %d", i+1, e.Seq)
			}
		}
	}
}

// Events that are adopted together become visible together, and known events are
// not added again.
func TestAdoptNotifiesOnce(t *testing.T) {
	l := New(Options{Run: "r", Tier: &brokenTier{}})
	events := make([]spool.Event, 5)
	for i := range events {
		events[i] = spool.Event{Seq: spool.Seq(i + 1), Kind: spool.KindOutput}
	}
	l.Adopt(2, events[:2], false)
	var last spool.Seq
	l.Watch(2, func() { last, _ = l.Last() })
	l.Adopt(5, events, false)
	if last != 5 {
		t.Errorf("the watch sees event %d first, want 5", last)
	}
	got, err := l.Read(0, 1<<20)
	if err != nil || len(got) != 5 {
		t.Fatalf("read %d events, %v", len(got), err)
	}
	for i, e := range got {
		if e.Seq != spool.Seq(i+1) {
			t.Errorf("event %d has seq %d", i+1, e.Seq)
		}
	}
}
