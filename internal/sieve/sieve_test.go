package sieve

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/logtext"
	"github.com/spool-run/spool/internal/record"
)

// build returns the sieve of a log, and the size of its records.
func build(t testing.TB, events ...spool.Event) (notes []byte, size int) {
	t.Helper()
	b := NewBuilder()
	for i := range events {
		events[i].Seq, events[i].Time = spool.Seq(i+1), time.Unix(1, 0)
		raw, err := record.Append(nil, &events[i])
		if err != nil {
			t.Fatal(err)
		}
		if n, end, err := b.AddRecords(raw, int64(size)); err != nil || end || n != len(raw) {
			t.Fatal(n, end, err)
		}
		size += len(raw)
	}
	return b.Notes(), size
}

// output returns text as events of a size.
func output(text []byte, size int) (events []spool.Event) {
	for len(text) > 0 {
		n := min(size, len(text))
		events = append(events, spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: text[:n]})
		text = text[n:]
	}
	return events
}

// mayCount returns how many parts may have a text, and how many there are.
func mayCount(t testing.TB, notes []byte, text string) (may, all int) {
	t.Helper()
	whole, err := Read(notes, nil)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Read(notes, NewQuery([][]string{{text}}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		if parts[i].May {
			may += int(parts[i].Size)
		}
	}
	for i := range whole {
		all += int(whole[i].Size)
	}
	return may, all
}

// A sieve takes a small part of the log, and passes over nearly all of it for a word
// that is not there, and over most for an identifier.
func TestSieveOfLogs(t *testing.T) {
	text := logtext.New(5).Append(nil, 6<<20)
	notes, size := build(t, output(text, 10_000)...)
	if part := float64(len(notes)) / float64(size); part > 0.025 {
		t.Errorf("it takes %.3f of the log", part)
	}
	for _, word := range []string{"xylophone", "segmentation fault", "OutOfMemory", "deadlock", "0x7fff5fbff8c0"} {
		if may, all := mayCount(t, notes, word); may > all/10 {
			t.Errorf("%q may be in %d of %d bytes", word, may, all)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	rate := 0.0
	for range 20 {
		may, all := mayCount(t, notes, fmt.Sprintf("%08x", r.Uint32()))
		rate += float64(may) / float64(all) / 20
	}
	if rate > 0.3 {
		t.Errorf("a random identifier may be in %.2f of the log", rate)
	}
	t.Logf("the sieve takes %.4f of the log; a random identifier may be in %.3f", float64(len(notes))/float64(size), rate)
}

// Text of random bytes has too many grams; its sieve stays small, and tells nothing.
func TestSieveOfNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	noise := make([]byte, 2<<20)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	notes, size := build(t, output(noise, 64<<10)...)
	if len(notes) > size/maxSetShare+1000 {
		t.Errorf("%d bytes for %d", len(notes), size)
	}
	if may, all := mayCount(t, notes, "xylophone"); may != all {
		t.Errorf("%d of %d bytes may have a word", may, all)
	}
}

// Of events that are not output a group has few, or is always read.
func TestOthersAreBounded(t *testing.T) {
	for _, c := range []struct {
		n   int
		may bool
	}{{3, false}, {GroupBytes / maxOthersShare / 100, true}} {
		events := output([]byte("one line\n"), 100)
		for range c.n {
			events = append(events, spool.Event{Kind: spool.KindNotice, Data: []byte(`{"text":"` + string(bytes.Repeat([]byte("x"), 90)) + `"}`)})
		}
		notes, _ := build(t, events...)
		parts, err := Read(notes, NewQuery([][]string{{"absent"}}))
		if err != nil || len(parts) != 1 || parts[0].May != c.may || (len(parts[0].Others) > 0) == c.may {
			t.Errorf("%d events: %d parts, %+v, %v", c.n, len(parts), parts[0].May, err)
		}
	}
}

// A line counts where it ends, in whichever events it came, and in pieces if it is long.
func TestLinesCountWhereTheyEnd(t *testing.T) {
	filler := bytes.Repeat([]byte("0123456789\n"), GroupBytes/11+1)
	long := bytes.Repeat([]byte("abcdefgh"), 2*MaxLine/8)
	copy(long[100:], "xylophone")
	events := append(output(filler, 64<<10), spool.Event{Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: []byte("\x1b[1mneed")})
	events = append(events, output(filler, 64<<10)...)
	events = append(events, output(filler, 64<<10)...)
	events = append(events, spool.Event{Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: []byte("\x1b[0mle\n")})
	events = append(events, output(long, 64<<10)...)
	notes, _ := build(t, events...)
	for _, word := range []string{"needle", "NEEDLE", "xylophone"} {
		parts, err := Read(notes, NewQuery([][]string{{word}}))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range parts {
			if p.May {
				n++
			}
			if p.May && word != "xylophone" && p.Begin.Open[1].Seq == 0 {
				t.Errorf("%s: the line is not open in the part that begins at %d", word, p.Begin.Next)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d parts", word, n)
		}
	}
}

func TestDamagedSieve(t *testing.T) {
	notes, _ := build(t, output([]byte("some text\nand more\n"), 7)...)
	for i := range notes {
		b := bytes.Clone(notes)
		b[i] ^= 0x10
		if _, err := Read(b, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := Read(notes[:i], nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestQueriesThatTellNothing(t *testing.T) {
	for _, clauses := range [][][]string{nil, {{"abc"}}, {{"abcd", "ab"}}, {{}}} {
		if q := NewQuery(clauses); q != nil {
			t.Errorf("%q: %+v", clauses, q)
		}
	}
}

// The meaning of a sieve must not change without its version: one that was made before
// would make a search miss lines.
func TestMeaningIsPinned(t *testing.T) {
	styled := []byte("\x1b[1;31mred\x1b[0m text \x1b]0;title\x07x\x1b(Bok\x1bM\r\nK\u212a\u017f\xff\x1b[\x1b]8;;http://a\x1b\\link\n\x1bPq\x1b\\end\x1b")
	styled = bytes.Repeat(append(styled, "2026-11-16T09:00:00Z ERROR Disk /dev/sda1: 97%\n"...), 3)
	notes, _ := build(t, output(styled, 9)...)
	sum := sha256.Sum256(notes)
	const want = "a6afa76a85483b9b"
	if got := hex.EncodeToString(sum[:8]); got != want {
		t.Errorf("sum %s, want %s: raise version, and set this sum", got, want)
	}
}

// A sieve may be anything, even with a right checksum.
func FuzzRead(f *testing.F) {
	notes, _ := build(f, output([]byte("some text\nand more\n"), 7)...)
	f.Add(notes[:len(notes)-4])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		parts, err := Read(b, NewQuery([][]string{{"more"}}))
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		After(parts, 3)
	})
}
