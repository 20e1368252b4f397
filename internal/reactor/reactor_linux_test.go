package reactor

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// open returns a reactor that watches a pipe with index 7.
func open(t *testing.T, b *Budget) (*Reactor, *os.File, *os.File) {
	t.Helper()
	s, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &Reactor{}
	r.Init(s, b)
	t.Cleanup(func() {
		r.Close()
		_ = in.Close()
		_ = out.Close()
	})
	if err := r.Add(int(in.Fd()), 7); err != nil {
		t.Fatal(err)
	}
	return r, in, out
}

func wait(r *Reactor, deadline time.Time) []Event {
	events := make([]Event, 4)
	n, ok := r.Poll(events)
	if !ok {
		n = r.Park(events, deadline)
	}
	return events[:n]
}

func TestEventsCarryIndex(t *testing.T) {
	var b Budget
	r, in, out := open(t, &b)
	for range 3 { // polled and parked
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := wait(r, time.Time{})
		if len(got) != 1 || got[0].Fd != 7 || got[0].Events&unix.EPOLLIN == 0 {
			t.Fatalf("events %+v", got)
		}
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := wait(r, time.Now().Add(5*time.Millisecond)); len(got) != 0 {
			t.Fatalf("events %+v", got)
		}
	}
}

func TestChangeToNothingStillReportsTheEnd(t *testing.T) {
	var b Budget
	r, in, out := open(t, &b)
	r.Change(int(in.Fd()), 7, 0)
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := wait(r, time.Now().Add(5*time.Millisecond)); len(got) != 0 {
		t.Fatalf("events %+v", got)
	}
	_ = out.Close()
	if got := wait(r, time.Time{}); len(got) != 1 || got[0].Events&unix.EPOLLHUP == 0 {
		t.Fatalf("events %+v", got)
	}
	r.Remove(int(in.Fd()))
	if got := wait(r, time.Now().Add(5*time.Millisecond)); len(got) != 0 {
		t.Fatalf("events %+v after Remove", got)
	}
}

func TestWake(t *testing.T) {
	var b Budget
	r, _, _ := open(t, &b)
	events := make([]Event, 1)
	r.Wake() // before the first Park
	if n := r.Park(events, time.Time{}); n != 0 {
		t.Fatalf("%d events", n)
	}
	for range 100 {
		r.Acknowledge()
		done := make(chan int)
		go func() { done <- r.Park(events, time.Time{}) }()
		r.Wake() // before or while it is parked
		if n := <-done; n != 0 {
			t.Fatalf("%d events", n)
		}
	}
	r.Acknowledge()
	if n := r.Park(events, time.Now().Add(time.Millisecond)); n != 0 {
		t.Fatalf("%d events", n)
	}
}

func TestSleep(t *testing.T) {
	var b Budget
	r, in, out := open(t, &b)
	if r.Sleep(time.Millisecond, int(in.Fd())) || r.Sleep(time.Millisecond, -1) {
		t.Error("input where there is none")
	}
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !r.Sleep(time.Hour, int(in.Fd())) {
		t.Error("input was not seen")
	}
}

// More reactors than the budget has room for wait all the same.
func TestBudget(t *testing.T) {
	var b Budget
	done := make(chan int)
	const many = 40
	for range many {
		r, _, out := open(t, &b)
		go func() {
			n := 0
			for until := time.Now().Add(20 * time.Millisecond); n == 0; {
				n = len(wait(r, until))
			}
			done <- n
		}()
		go func() { _, _ = out.Write([]byte("x")) }()
	}
	for range many {
		if n := <-done; n != 1 {
			t.Errorf("%d events", n)
		}
	}
}
