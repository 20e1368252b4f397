package search

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"strings"
	"testing"
)

func TestLiterals(t *testing.T) {
	many := "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota"
	for _, c := range []struct{ expr, want string }{
		{"error", "error"}, {"(?i)Error", "error~"}, {"foo.*barbaz", "barbaz"}, {"(refused|denied) by", "refused,denied"}, {"x?error+", "erro"},
		{"(abc){2,}", "abc"}, {"(abc)*", ""}, {"a|", ""}, {"[0-9]+ ms", " ms"}, {"(?i)straße", "stra~"}, {"\uFFFDab", "ab"}, {many, ""},
		{"^(error|panic|fatal): ", "error,panic,fatal"},
	} {
		tree, err := syntax.Parse(c.expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range best(clausesOf(tree.Simplify())) {
			text := l.text
			if l.fold {
				text = strings.ToLower(text) + "~"
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ","); got != c.want {
			t.Errorf("%s: %q, want %q", c.expr, got, c.want)
		}
	}
}

// TestNeedle compares the index of a needle with that of package bytes.
func TestNeedle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := make([]byte, r.IntN(200))
		for i := range text {
			text[i] = "abABxX e"[r.IntN(8)]
		}
		word := make([]byte, 1+r.IntN(4))
		for i := range word {
			word[i] = "abABxX e"[r.IntN(8)]
		}
		n := newNeedle(string(word), false)
		if got, want := n.index(text), bytes.Index(text, word); got != want {
			t.Fatalf("%q in %q: %d, want %d", word, text, got, want)
		}
		n = newNeedle(string(word), true)
		if got, want := n.index(text), bytes.Index(bytes.ToLower(text), bytes.ToLower(word)); got != want {
			t.Fatalf("%q in %q, ignoring case: %d, want %d", word, text, got, want)
		}
	}
	for _, n := range []int{0, 100, 100_000} {
		text := []byte(strings.Repeat("aaaaaaab", n) + "aaab")
		for _, fold := range []bool{false, true} {
			needle := newNeedle("aaab", fold)
			if got, want := needle.index(text), bytes.Index(text, []byte("aaab")); got != want {
				t.Errorf("after %s: %d, want %d", fmt.Sprint(n), got, want)
			}
		}
	}
}
