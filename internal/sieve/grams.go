package sieve

import (
	"bytes"
	"math/bits"
)

// A gram is known by 22 bits of its hash.
const gramBits = 22

// fold maps upper case to lower case.
var fold = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
		if i >= 'A' && i <= 'Z' {
			t[i] += 'a' - 'A'
		}
	}
	return t
}()

// hash returns what a gram is known by.
func hash(gram uint32) uint32 { return gram * 0x9e3779b1 >> (32 - gramBits) }

// bit returns the bit of a gram in a set of this many bytes.
func bit(gram uint32, size int) uint32 {
	return uint32(uint64(gram) * uint64(size*8) >> gramBits)
}

// grams collects those of a group.
type grams struct {
	seen []uint64 // a bit for each
	all  []uint32
}

func newGrams() *grams { return &grams{seen: make([]uint64, 1<<gramBits/64)} }

// add adds the grams of lines.
func (g *grams) add(text []byte) {
	var gram uint32
	n := 0 // bytes of the line in gram
	for _, c := range text {
		if c == '\n' {
			n = 0
			continue
		}
		gram = gram<<8 | uint32(fold[c])
		if n++; n < Gram {
			continue
		}
		h := hash(gram)
		if w, b := h/64, uint64(1)<<(h%64); g.seen[w]&b == 0 {
			g.seen[w] |= b
			g.all = append(g.all, h)
		}
	}
}

// Letters beyond ASCII that are the same as one in ASCII if case is ignored.
var (
	kelvin = []byte("\u212a") // k
	longS  = []byte("\u017f") // s
)

// addFolded is add, and also adds the grams of the text with the letters that are
// letters of ASCII if case is ignored.
func (g *grams) addFolded(text []byte) {
	g.add(text)
	if bytes.Contains(text, kelvin) || bytes.Contains(text, longS) {
		text = bytes.ReplaceAll(text, kelvin, []byte("k"))
		g.add(bytes.ReplaceAll(text, longS, []byte("s")))
	}
}

// take appends the set to dst, of about max bytes at most, and empties it.
func (g *grams) take(dst []byte, max int) []byte {
	size := (len(g.all)*bitsPerGram + 63) / 64 * 8
	size = min(size, (max+7)/8*8)
	at := len(dst)
	dst = append(dst, make([]byte, size)...)
	set := dst[at:]
	for _, h := range g.all {
		g.seen[h/64] = 0
		b := bit(h, size)
		set[b/8] |= 1 << (b % 8)
	}
	g.all = g.all[:0]
	return dst
}

// crowded reports whether so many bits of a set are one that it tells nothing.
func crowded(set []byte) bool {
	ones := 0
	for _, b := range set {
		ones += bits.OnesCount8(b)
	}
	return ones > len(set)*7
}
