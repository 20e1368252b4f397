package reactor

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newPoller returns a poller that ends with the test.
func newPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// open returns a reactor that watches a pipe with index 7.
func open(t *testing.T, p *Poller) (*Reactor, *os.File, *os.File) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &Reactor{}
	r.Init(p)
	t.Cleanup(func() {
		r.Close()
		_ = in.Close()
		_ = out.Close()
	})
	r.Add(int(in.Fd()), 7)
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
	p := newPoller(t)
	r, in, out := open(t, p)
	for range 3 { // polled and parked
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := wait(r, time.Time{})
		if len(got) != 1 || got[0].Index != 7 || got[0].Events&unix.EPOLLIN == 0 {
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
	p := newPoller(t)
	r, in, out := open(t, p)
	r.Change(int(in.Fd()), 0)
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
	p := newPoller(t)
	r, _, _ := open(t, p)
	events := make([]Event, 1)
	r.Wake() // before the first Park
	if n := r.Park(events, time.Time{}); n != 0 {
		t.Fatalf("%d events", n)
	}
	for range 100 {
		done := make(chan int)
		go func() { done <- r.Park(events, time.Time{}) }()
		r.Wake() // before or while it is parked
		if n := <-done; n != 0 {
			t.Fatalf("%d events", n)
		}
	}
	if n := r.Park(events, time.Now().Add(time.Millisecond)); n != 0 {
		t.Fatalf("%d events", n)
	}
}

func TestSleep(t *testing.T) {
	p := newPoller(t)
	r, in, out := open(t, p)
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

// More reactors than may wait in a system call wait all the same.
func TestManyReactors(t *testing.T) {
	p := newPoller(t)
	done := make(chan int)
	const many = 40
	for range many {
		r, _, out := open(t, p)
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

// What happens while a reactor does not rest wakes the poller once at the most, and a
// reactor that parks again learns of it.
func TestPollerReportsOnce(t *testing.T) {
	p := newPoller(t)
	r, in, out := open(t, p)
	var events [1]Event
	for range 3 {
		for range 2 { // the first may end because it was woken before
			if n := r.Park(events[:], time.Now().Add(time.Millisecond)); n != 0 {
				t.Fatalf("%d events", n)
			}
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, "the reactor is woken", func() bool { // because it is armed
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.woken
		})
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if got, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0); got != 0 || err != nil {
			t.Fatalf("the poller has %d events, %v", got, err)
		}
		if n := r.Park(events[:], time.Time{}); n != 1 || events[0].Index != 7 {
			t.Fatalf("%d events: %+v", n, events)
		}
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// A reactor that rests is resumed once: by an event, by a deadline, or by who wakes it.
func TestRest(t *testing.T) {
	r, in, out := open(t, newPoller(t))
	resumed := make(chan struct{}, 10)
	resume := func() { resumed <- struct{}{} }
	for name, tt := range map[string]struct {
		deadline time.Time
		do       func()
		want     int // events
	}{
		"event":    {do: func() { _, _ = out.Write([]byte("x")) }, want: 1},
		"deadline": {deadline: time.Now().Add(time.Millisecond), do: func() {}},
		"woken":    {deadline: time.Now().Add(time.Hour), do: r.Wake},
	} {
		if !r.Rest(tt.deadline, resume) {
			t.Fatalf("%s: it does not rest", name)
		}
		tt.do()
		<-resumed
		if n := r.Look(make([]Event, 1)); n != tt.want {
			t.Errorf("%s: %d events", name, n)
		}
		if tt.want > 0 {
			if _, err := in.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Wake()
	if r.Rest(time.Time{}, resume) {
		t.Error("it rests although it was woken")
	}
	if !r.Rest(time.Time{}, resume) {
		t.Error("it does not rest")
	}
	r.Wake()
	<-resumed
	if len(resumed) > 0 {
		t.Error("it was resumed twice")
	}
}

// Another goroutine changes what a parked reactor waits for.
func TestChangeWhileParked(t *testing.T) {
	r, in, out := open(t, newPoller(t))
	r.Change(int(in.Fd()), 0)
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	parked := make(chan int)
	var events [1]Event
	go func() { parked <- r.Park(events[:], time.Time{}) }()
	polltest.Until(t, "the reactor is parked", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.resume != nil
	})
	r.Change(int(in.Fd()), unix.EPOLLIN)
	if n := <-parked; n != 1 || events[0].Index != 7 {
		t.Fatalf("%d events: %+v", n, events)
	}
}

// A descriptor that is closed and used again belongs to the reactor that has it now.
func TestDescriptorIsUsedAgain(t *testing.T) {
	p := newPoller(t)
	var events [1]Event
	for i := range 100 {
		r, in, out := open(t, p)
		if n := r.Park(events[:], time.Now().Add(time.Microsecond)); n != 0 {
			t.Fatalf("%d: %d events", i, n)
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n := r.Park(events[:], time.Time{}); n != 1 {
			t.Fatalf("%d: %d events", i, n)
		}
		r.Close()
		_ = in.Close()
		_ = out.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.reactors); n != 0 {
		t.Errorf("%d reactors are left", n)
	}
}

// If the kernel watches nothing for the poller, a parked reactor looks now and then.
func TestParkWithoutAPoller(t *testing.T) {
	p := newPoller(t)
	p.Close()
	r, _, out := open(t, p)
	parked := make(chan int)
	go func() {
		n := 0
		for n == 0 {
			n = r.Park(make([]Event, 1), time.Time{})
		}
		parked <- n
	}()
	if _, err := out.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if n := <-parked; n != 1 {
		t.Fatalf("%d events", n)
	}
}
