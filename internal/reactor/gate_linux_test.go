package reactor

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The runtime's poller sees the events of a set during a Park only.
func TestGateIsShutWhileNotParked(t *testing.T) {
	r, in, out := open(t, &Budget{})
	events := make([]Event, 1)
	for range 3 {
		if n := r.Park(events, time.Now().Add(time.Millisecond)); n != 0 {
			t.Fatalf("%d events", n)
		}
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.EpollWait(r.gate.fd, events, 0); n != 0 || err != nil {
			t.Fatalf("the gate reports %d events, %v", n, err)
		}
		parked := make(chan int)
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		go func() { parked <- r.Park(events, time.Time{}) }()
		if _, err := out.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if n := <-parked; n != 1 || events[0].Fd != 7 {
			t.Fatalf("%d events: %+v", n, events)
		}
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a descriptor for the gate the set itself is in the runtime's poller.
func TestParkWithoutAGate(t *testing.T) {
	r, _, out := open(t, &Budget{})
	r.poll(r.fd)
	events := make([]Event, 1)
	parked := make(chan int)
	go func() { parked <- r.Park(events, time.Time{}) }()
	if _, err := out.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if n := <-parked; n != 1 {
		t.Fatalf("%d events", n)
	}
}
