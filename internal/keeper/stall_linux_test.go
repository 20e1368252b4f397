package keeper

import "testing"

// The timer fires once for an operation that takes long, and the next operation
// begins only after the end of the last.
func TestStallTimer(t *testing.T) {
	stalled := make(chan struct{})
	s, err := newStallTimer(func() { stalled <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for range 3 {
		if !s.begin() {
			t.Fatal("begin refused although no operation runs")
		}
		<-stalled
		if s.begin() {
			t.Fatal("begin accepted a second operation")
		}
		s.end()
	}
}
