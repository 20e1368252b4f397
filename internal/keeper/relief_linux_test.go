package keeper

import "testing"

// Whoever is at something for long is relieved, once, and the next one may
// begin only when it is over.
func TestRelief(t *testing.T) {
	relieved := make(chan struct{})
	r, err := newRelief(func() { relieved <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for range 3 {
		if !r.begin() {
			t.Fatal("nobody is at anything, and yet")
		}
		<-relieved
		if r.begin() {
			t.Fatal("two are at something")
		}
		r.end()
	}
}
