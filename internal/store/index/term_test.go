package index

import (
	"fmt"
	"testing"
)

// TestTermsDiffer checks that many values of a label have terms of their own, of which
// the halves that postings have are not enough.
func TestTermsDiffer(t *testing.T) {
	const n = 300_000
	terms, halves := make(map[Term]bool, n), make(map[uint32]bool, n)
	for i := range n {
		term := NewTerm("label", "commit", fmt.Sprintf("%040x", i))
		terms[term], halves[term.half()] = true, true
	}
	if len(terms) != n || len(halves) == n {
		t.Errorf("%d values have %d terms and %d halves", n, len(terms), len(halves))
	}
	if a, b := NewTerm("label", "ab", "c"), NewTerm("label", "a", "bc"); a == b {
		t.Error("a term does not tell where its parts end")
	}
}
