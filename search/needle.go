package search

import (
	"bytes"
	"strings"
)

// needle is text to look for. It looks for its rarest byte first, which the processor
// finds in many bytes at once, and compares the rest only there.
type needle struct {
	text []byte // lower case if case is ignored
	fold bool   // the case of ASCII letters is ignored
	at   int    // of the rarest byte in text
	rare [2]byte
}

func newNeedle(text string, fold bool) needle {
	if fold {
		text = strings.ToLower(text)
	}
	n := needle{text: []byte(text), fold: fold}
	for i := range n.text {
		if rank(n.text[i], fold) < rank(n.text[n.at], fold) {
			n.at = i
		}
	}
	c := n.text[n.at]
	n.rare = [2]byte{c, c}
	if fold && c >= 'a' && c <= 'z' {
		n.rare[1] = c - 'a' + 'A'
	}
	return n
}

// frequent are the most frequent bytes of logs, the most frequent first. The others are
// rare.
const frequent = " etaroinscld0u1m-2p/.f3_4:5678h9g=bTv,\"I[]yE()wOSkNDAxRLCPFMGBUjW"

// rank returns how frequent a byte is in logs: more for a more frequent one.
func rank(c byte, fold bool) int {
	i := strings.IndexByte(frequent, c)
	if i < 0 {
		i = len(frequent)
	}
	r := len(frequent) - i
	if fold && c >= 'a' && c <= 'z' {
		r += 2 // two bytes have to be found
	}
	return r
}

// Looking for the rarest byte ends if it is wrong too often.
const (
	fewMisses    = 32
	bytesPerMiss = 32
)

// index returns where the needle is in b first, or -1.
func (n *needle) index(b []byte) int {
	if n.rare[0] != n.rare[1] {
		return n.indexEither(b)
	}
	misses := 0
	for i := n.at; i < len(b); i++ {
		k := bytes.IndexByte(b[i:], n.rare[0])
		if k < 0 {
			return -1
		}
		i += k
		start := i - n.at
		if start+len(n.text) > len(b) {
			return -1
		}
		if n.is(b[start:]) {
			return start
		}
		if misses++; !n.fold && misses > fewMisses && start < misses*bytesPerMiss {
			k := bytes.Index(b[start+1:], n.text)
			if k < 0 {
				return -1
			}
			return start + 1 + k
		}
	}
	return -1
}

// indexEither is index of a needle whose rarest byte is a letter of either case.
func (n *needle) indexEither(b []byte) int {
	var next [2]int // where each case is, at or after i
	for c := range next {
		next[c] = after(b, min(n.at, len(b)), bytes.IndexByte(b[min(n.at, len(b)):], n.rare[c]))
	}
	for {
		c := 0
		if next[1] < next[0] {
			c = 1
		}
		i := next[c]
		start := i - n.at
		if i >= len(b) || start+len(n.text) > len(b) {
			return -1
		}
		if n.is(b[start:]) {
			return start
		}
		next[c] = after(b, i+1, bytes.IndexByte(b[i+1:], n.rare[c]))
	}
}

// is reports whether b begins with the needle.
func (n *needle) is(b []byte) bool {
	if !n.fold {
		return bytes.HasPrefix(b, n.text)
	}
	for i, want := range n.text {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != want {
			return false
		}
	}
	return true
}

// after returns the index in text of what was found at index i after from, or the
// length of the text if it was not found.
func after(text []byte, from, i int) int {
	if i < 0 {
		return len(text)
	}
	return from + i
}
