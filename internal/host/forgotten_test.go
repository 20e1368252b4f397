package host

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
)

// TestForgottenIsBounded removes more runs than a host without a state directory
// remembers: a watcher that looks often is told of all, and a late one of the last.
func TestForgottenIsBounded(t *testing.T) {
	h := &Host{}
	id := func(n int) spool.RunID { return spool.RunID(fmt.Sprintf("r%d", n)) }
	often, late := &ownRemovals{host: h}, &ownRemovals{host: h}
	var seen []spool.RunID
	look := func(r *ownRemovals) []spool.RunID {
		gone, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	const n = 2*maxForgotten + maxForgotten/2
	for i := range n {
		h.noteForgotten(id(i))
		if i%1000 == 0 {
			seen = append(seen, look(often)...)
		}
	}
	if seen = append(seen, look(often)...); len(seen) != n || seen[0] != id(0) || seen[n-1] != id(n-1) || len(slices.Compact(seen)) != n {
		t.Errorf("one that looks often was told of %d of %d", len(seen), n)
	}
	if gone := look(late); len(gone) != len(h.forgotten) || len(gone) > maxForgotten || gone[len(gone)-1] != id(n-1) {
		t.Errorf("a late one was told of %d, and the host remembers %d", len(gone), len(h.forgotten))
	}
	if gone := append(look(often), look(late)...); len(gone) > 0 {
		t.Errorf("they were told of %v twice", gone)
	}
}
