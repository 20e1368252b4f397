package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show returns the text of a screen that got some output, and its cursor.
func show(rows, cols int, output string) string {
	s := New(rows, cols)
	_, _ = s.Write([]byte(output))
	return s.text()
}

func (s *Screen) text() string {
	row, col, _ := s.Cursor()
	return strings.Join(s.Rows(), "|") + fmt.Sprintf(" @%d,%d", row, col)
}

func TestScreen(t *testing.T) {
	for _, tt := range []struct{ name, output, want string }{
		{"text", "ab\r\ncd", "ab|cd|| @1,2"},
		{"wrap", "abcdefgh", "abcdef|gh|| @1,2"},
		{"pending wrap", "abcdef", "abcdef||| @0,5"},
		{"no wrap after a return", "abcdef\rX", "Xbcdef||| @0,1"},
		{"wrap off", "\x1b[?7labcdefgh", "abcdeh||| @0,5"},
		{"scroll", "1\r\n2\r\n3\r\n4\r\n5", "2|3|4|5 @3,1"},
		{"scroll region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1|3|X|4 @2,1"},
		{"reverse index", "1\r\n2\x1b[H\x1bM0", "0|1|2| @0,1"},
		{"insert lines", "1\r\n2\r\n3\x1b[2;1H\x1b[L", "1||2|3 @1,0"},
		{"delete lines", "1\r\n2\r\n3\x1b[1;1H\x1b[2M", "3||| @0,0"},
		{"insert and delete characters", "abcdef\x1b[1;2H\x1b[2@\x1b[1;6H\x1b[P", "a  bc||| @0,5"},
		{"insert mode", "abc\x1b[1;1H\x1b[4hX", "Xabc||| @0,1"},
		{"erase above", "abcdef\r\nabcdef\x1b[2;3H\x1b[1J", "|   def|| @1,2"},
		{"erase below", "abcdef\r\nabcdef\x1b[1;3H\x1b[J", "ab||| @0,2"},
		{"erase line", "abcdef\x1b[1;3H\x1b[1K", "   def||| @0,2"},
		{"erase characters", "abcdef\x1b[1;2H\x1b[2X", "a  def||| @0,1"},
		{"scrollback only", "abc\x1b[3J", "abc||| @0,3"},
		{"save and restore", "ab\x1b7\r\ncd\x1b8X", "abX|cd|| @0,3"},
		{"origin mode", "\x1b[2;4r\x1b[?6h\x1b[1;1HX", "|X|| @1,1"},
		{"tabs", "a\tb", "a    b||| @0,5"},
		{"backspace", "abc\b\bX", "aXc||| @0,2"},
		{"repeat", "a\x1b[3b", "aaaa||| @0,4"},
		{"nothing to repeat", "a\x1b[m\x1b[3b", "a||| @0,1"},
		{"line drawing", "\x1b(0lqk\x1b(Bx", "┌─┐x||| @0,4"},
		{"shifted line drawing", "\x1b)0\x0eq\x0fq", "─q||| @0,2"},
		{"wide characters", "日本語x", "日本語|x|| @1,1"},
		{"wide character at the edge", "abcde日", "abcde|日|| @1,2"},
		{"half of a wide character", "日本\x1b[1;2HX", " X本||| @0,2"},
		{"combining", "e\u0301x", "e\u0301x||| @0,2"},
		{"alternate screen", "main\x1b[?1049h\x1b[Halt\x1b[?1049lX", "mainX||| @0,5"},
		{"in the alternate screen", "main\x1b[?1049h\x1b[Halt", "alt||| @0,3"},
		{"strings", "a\x1b]0;title\x07b\x1bPq#0\x1b\\c\x1b_x\x1b\\d", "abcd||| @0,4"},
		{"string that a sequence ends", "a\x1b]0;t\x1b[1mb", "ab||| @0,2"},
		{"controls in sequences", "ab\x1b[\r1Cx", "ax||| @0,2"},
		{"cancelled", "a\x1b[3\x18b", "ab||| @0,2"},
		{"invalid UTF-8", "a\xffb\xe2\x82c", "a\ufffdb\ufffdc||| @0,5"},
		{"soft hyphen and joiner", "a\u00adb\u200dc", "ab\u200dc||| @0,3"},
		{"reset", "abc\x1b[?1049hx\x1bc", "||| @0,0"},
		{"cursor movement stops at margins", "\x1b[2;3r\x1b[3;1H\x1b[9AX", "|X|| @1,1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(4, 6, tt.output); got != tt.want {
				t.Errorf("%q shows\n%s, want\n%s", tt.output, got, tt.want)
			}
			// The borders of writes do not matter.
			s := New(4, 6)
			for i := range len(tt.output) {
				_, _ = s.Write([]byte{tt.output[i]})
			}
			if got := s.text(); got != tt.want {
				t.Errorf("%q in single bytes shows\n%s, want\n%s", tt.output, got, tt.want)
			}
		})
	}
}

// state is all that a screen shows and does, without what Paint leaves out.
func state(s *Screen) string {
	var b strings.Builder
	for i := range s.pages {
		p := &s.pages[i]
		if i == 1 && s.page != p {
			continue // not shown, and erased before it is
		}
		if i == 0 && s.page != p {
			fmt.Fprintf(&b, "saved %+v\n", cursor{row: p.saved.row, col: p.saved.col, pen: p.saved.pen})
		} else {
			c := p.cursor
			c.origin, c.charsets, c.shift = false, [4]byte{}, 0
			fmt.Fprintf(&b, "cursor %+v\n", c)
		}
		for row, line := range p.lines {
			for col, c := range line {
				if c.char == 0 && c.width == 0 {
					c.char, c.width = ' ', 1
				}
				if c != (cell{char: ' ', width: 1}) {
					fmt.Fprintf(&b, "%d %d,%d %+v\n", i, row, col, c)
				}
			}
		}
	}
	m := s.modes
	m.parser, m.region, m.styled, m.charsets, m.shifted = parser{}, false, false, [2]byte{}, false
	for i := range m.set { // whether it was set or never changed
		if m.set[i] == modeList[i].initial {
			m.set[i] = untouched
		}
	}
	for i := range m.keyboard {
		if len(m.keyboard[i]) == 0 || i != m.side() {
			m.keyboard[i] = nil
		}
	}
	for i, set := range s.charsets {
		if set == 'B' {
			s.charsets[i] = 0
		}
	}
	fmt.Fprintf(&b, "modes %+v\nregion %d %d charsets %q %d\n", m, s.top, s.bottom, s.charsets, s.shift)
	return b.String()
}

// pieces are what random output is made of.
var pieces = []string{
	"a", "hello", "日本", "e\u0301", "\r\n", "\n", "\r", "\b", "\t", "\x1b[31m", "\x1b[1;4:3;38;5;200m", "\x1b[48;2;1;2;3m", "\x1b[m", "\x1b[7m",
	"\x1b[H", "\x1b[2;5H", "\x1b[5;3H", "\x1b[A", "\x1b[3C", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2L", "\x1b[M", "\x1b[2@", "\x1b[P", "\x1b[3X",
	"\x1b[2;4r", "\x1b[r", "\x1bM", "\x1bD", "\x1b7", "\x1b8", "\x1b[S", "\x1b[T", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h", "\x1b[?1h", "\x1b[?2004h",
	"\x1b[?1000h\x1b[?1006h", "\x1b[?1000l", "\x1b=", "\x1b>", "\x1b[?6h", "\x1b[?6l", "\x1b[4h", "\x1b[4l", "\x1b(0", "\x1b(B", "\x0e", "\x0f", "\x1b[?7l", "\x1b[?7h",
	"\x1b[2 q", "\x1b[>4;2m", "\x1b[>1u", "\x1b[<u", "abcdefghijklmnopqrstuvwxyz", "\x1b]0;t\x07", "\x1b[?5h", "\xff",
}

// What Paint returns makes another screen show and do the same, whatever the
// program wrote before and writes after.
func TestPaintIsComplete(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var output []byte
		for range r.IntN(60) {
			output = append(output, pieces[r.IntN(len(pieces))]...)
		}
		cut := len(output)
		if cut > 0 && r.IntN(2) == 0 {
			cut = r.IntN(cut) // perhaps within a sequence
		}
		s := New(6, 12)
		_, _ = s.Write(output[:cut])
		if row := s.page.cursor.row; s.modes.is(6) && (row < s.top || row >= s.bottom) {
			continue // only a restored cursor gets there
		}
		painted := New(6, 12)
		_, _ = painted.Write(s.Paint(6, 12))
		if diff := cmp.Diff(state(s), state(painted)); diff != "" {
			t.Fatalf("seed %d: after %q the painted screen differs: %s", seed, output[:cut], diff)
		}
		_, _ = s.Write(output[cut:])
		_, _ = painted.Write(output[cut:])
		if s.Alternate() { // the main screen was painted, too
			_, _ = s.Write([]byte("\x18\x1b[?1049l"))
			_, _ = painted.Write([]byte("\x18\x1b[?1049l"))
		}
		if got, want := painted.Rows(), s.Rows(); !cmp.Equal(got, want) {
			t.Fatalf("seed %d: after %q and %q:\n%s", seed, output[:cut], output[cut:], cmp.Diff(want, got))
		}
	}
}

// Restore undoes what a program did to the modes of a terminal.
func TestRestore(t *testing.T) {
	var untouched Modes
	if b := untouched.Restore(); len(b) > 0 {
		t.Errorf("a terminal that no program changed is changed by %q", b)
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := New(6, 12)
		var m Modes
		for range r.IntN(40) {
			piece := []byte(pieces[r.IntN(len(pieces))])
			_, _ = s.Write(piece)
			_, _ = m.Write(piece)
		}
		if _, _ = s.Write(m.Restore()); s.Alternate() || s.modes.changed() || s.top != 0 || s.bottom != 6 || s.page.cursor.pen != (style{}) {
			t.Fatalf("seed %d: the terminal is left in %+v after %q", seed, s.modes, m.Restore())
		}
	}
}

// changed reports whether a mode is not as at the beginning.
func (m *Modes) changed() bool {
	for i, mode := range modeList {
		if m.set[i] != untouched && m.set[i] != mode.initial {
			return true
		}
	}
	return m.alternate != 0 || m.insert || m.newline || m.keypad || m.shape != 0 || m.otherKeys != 0 || len(m.keyboard[0]) > 0
}

// A terminal of another size shows what fits.
func TestPaintOtherSize(t *testing.T) {
	s := New(4, 10)
	_, _ = s.Write([]byte("0123456789\r\nsecond\r\nthird\r\nfourth\x1b[4;7H"))
	small := New(2, 4)
	_, _ = small.Write(s.Paint(2, 4))
	if got := small.text(); got != "0123|seco @1,3" {
		t.Errorf("a small terminal shows %s", got)
	}
	large := New(6, 20)
	_, _ = large.Write(s.Paint(6, 20))
	if got := large.text(); got != "0123456789|second|third|fourth|| @3,6" {
		t.Errorf("a large terminal shows %s", got)
	}
}

// A repetition after the border repeats the character before it.
func TestPaintRepeat(t *testing.T) {
	for _, text := range []string{"ab", "日"} {
		s, painted := New(4, 10), New(4, 10)
		_, _ = s.Write([]byte("x" + text))
		_, _ = painted.Write(append(s.Paint(4, 10), "\x1b[2b"...))
		_, _ = s.Write([]byte("\x1b[2b"))
		if got, want := painted.text(), s.text(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestResize(t *testing.T) {
	s := New(4, 6)
	_, _ = s.Write([]byte("one\r\ntwo\r\nthree\r\n日本語"))
	s.Resize(2, 5)
	if got := s.text(); got != "three|日本 @1,4" {
		t.Errorf("a smaller screen shows %s", got)
	}
	s.Resize(3, 8)
	_, _ = s.Write([]byte("\r\nx"))
	if got := s.text(); got != "three|日本|x @2,1" {
		t.Errorf("a larger screen shows %s", got)
	}
}

// Sizes that make no sense are changed.
func TestScreenSizes(t *testing.T) {
	for _, tt := range []struct{ rows, cols, wantRows, wantCols int }{
		{0, 0, 24, 80}, {-1, 5, 24, 80}, {1, 1, 1, 1}, {65535, 65535, maxRows, maxCols},
	} {
		s := New(tt.rows, tt.cols)
		_, _ = s.Write([]byte("ab日\r\n\x1b[9L\x1b[2;9r\x1b[9@\x1b[9P\x1b[99;99Hx\x1bM"))
		_ = s.Paint(1, 1)
		if rows, cols := s.Size(); rows != tt.wantRows || cols != tt.wantCols {
			t.Errorf("New(%d, %d) has %d rows and %d columns", tt.rows, tt.cols, rows, cols)
		}
	}
}

// TestBack checks which lines go off the top of a screen, and which do not.
func TestBack(t *testing.T) {
	for _, tt := range []struct {
		name, output string
		keep         int
		want         string
	}{
		{"lines", "1\r\n2\r\n3\r\n4\r\n5", 10, "1 2"},
		{"only so many", "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n9", 2, "5 6"},
		{"none", "1\r\n2\r\n3\r\n4", 0, ""},
		{"scroll up", "1\r\n2\r\n3\x1b[2S", 10, "1 2"},
		{"scroll up far", "1\r\n2\r\n3\x1b[99S", 10, "1 2 3"},
		{"alternate screen", "\x1b[?1049h1\r\n2\r\n3\r\n4", 10, ""},
		{"below the top", "a\x1b[2;3r\x1b[3;1H\n\n\n", 10, ""},
		{"deleted lines", "1\r\n2\x1b[H\x1b[M", 10, ""},
		{"erased", "1\r\n2\r\n3\r\n4\x1b[3J", 10, ""},
		{"reset", "1\r\n2\r\n3\r\n4\x1bc", 10, ""},
	} {
		s := New(3, 5)
		s.KeepBack(tt.keep, false)
		_, _ = s.Write([]byte(tt.output))
		if got := strings.Join(s.Back(), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if c := s.Clone(); strings.Join(c.Back(), " ") != tt.want {
			t.Errorf("%s: a copy has %q", tt.name, c.Back())
		}
	}
	s := New(3, 5)
	s.KeepBack(1, true)
	_, _ = s.Write([]byte("\x1b[31ma日\x1b[m b\r\n2\r\n3\r\n4"))
	again := New(1, 5)
	_, _ = again.Write([]byte(s.Back()[0]))
	if got := again.Rows()[0]; got != "a日 b"[:len(got)] || !strings.Contains(s.Back()[0], "\x1b[") {
		t.Errorf("a line with colours is %q", s.Back())
	}
	s = New(3, 5)
	s.KeepBack(9, false)
	_, _ = s.Write([]byte("1\r\n2\r\n3"))
	s.Resize(2, 5)
	if got := strings.Join(s.Back(), " "); got != "1" {
		t.Errorf("a smaller screen leaves %q", got)
	}
}

func FuzzScreen(f *testing.F) {
	for _, p := range pieces {
		f.Add([]byte(p), uint8(5), uint8(9))
	}
	f.Fuzz(func(t *testing.T, output []byte, rows, cols uint8) {
		s := New(int(rows), int(cols))
		var m Modes
		for len(output) > 0 {
			n := min(len(output), 7)
			_, _ = s.Write(output[:n])
			_, _ = m.Write(output[:n])
			output = output[n:]
		}
		height, width := s.Size()
		painted := New(height, width)
		_, _ = painted.Write(s.Paint(height, width))
		if !bytes.Equal(painted.parser.pending, s.parser.pending) && len(s.parser.pending) < maxPending {
			t.Errorf("the painted screen is within %q, not %q", painted.parser.pending, s.parser.pending)
		}
		s.Resize(int(cols), int(rows))
		_, _ = s.Write(m.Restore())
	})
}

func BenchmarkWrite(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var full, lines []byte
	for len(full) < 1<<20 {
		full = fmt.Appendf(full, "\x1b[%d;%dH\x1b[3%dm%d\x1b[m", 1+r.IntN(30), 1+r.IntN(90), r.IntN(8), r.IntN(100000))
	}
	for len(lines) < 1<<20 {
		lines = append(lines, "a line of a build that scrolls along /usr/lib/something\r\n"...)
	}
	for _, bb := range []struct {
		name string
		b    []byte
	}{{"updates", full}, {"lines", lines}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.b)))
			s := New(30, 100)
			for b.Loop() {
				_, _ = s.Write(bb.b)
			}
		})
	}
}
