// Package screen keeps what a terminal shows: the characters of the main and
// the alternate screen, their colours, the cursor and the modes. It reads the
// bytes that a program wrote to its terminal, and writes the bytes that make
// another terminal show the same.
//
// It follows xterm in what programs use. It keeps no titles, no images and
// no links, lines above the screen only where somebody wants them, and answers no questions
// of programs.
package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/visible"
)

// Screen is the screen of a terminal. It is not safe for concurrent use.
type Screen struct {
	modes      Modes
	parser     parser
	rows, cols int
	pages      [2]page // the main and the alternate screen
	page       *page   // the one that is shown
	tabs       []bool
	top        int // the first row of the part that scrolls
	bottom     int // the row after its last one
	charsets   [4]byte
	shift      int  // the character set in use
	last       rune // the character just before, for its repetition
	back       back
}

// page is the main or the alternate screen.
type page struct {
	lines  [][]cell
	cursor cursor
	saved  cursor
	kept   bool // a program saved the cursor
	// redrawn is set once all of it was erased or has scrolled away: what was
	// drawn before does not matter any more.
	redrawn  bool
	scrolled int // rows that scrolled away at the top
}

// cursor is a position, and how characters are drawn there.
type cursor struct {
	row, col int
	wrap     bool // the last column is full: the next character is on the next line
	pen      style
	origin   bool
	charsets [4]byte
	shift    int
}

// cell is one column of a row: a character, or a half of a wide one.
type cell struct {
	char  rune  // zero is a blank
	width uint8 // of the character; tail in its second half
	style style
	marks string // combining characters
}

// maxMarks bounds the combining characters of a cell, in bytes.
const maxMarks = 32

// Largest size of a screen; a larger one is cut. Both together bound the memory of one to
// about 50 MB; a line is often long, and a window is never as high.
const (
	maxRows = 500
	maxCols = 1000
)

// New returns an empty screen. A size of zero is 24 rows of 80 columns.
func New(rows, cols int) *Screen {
	if rows <= 0 || cols <= 0 {
		rows, cols = 24, 80
	}
	s := &Screen{rows: min(rows, maxRows), cols: min(cols, maxCols)}
	s.reset()
	return s
}

// reset is a reset of the terminal.
func (s *Screen) reset() {
	s.modes = Modes{}
	for i := range s.pages {
		s.pages[i] = page{lines: s.blankLines(s.rows), redrawn: true}
	}
	s.page = &s.pages[0]
	s.top, s.bottom = 0, s.rows
	s.charsets, s.shift, s.last = [4]byte{}, 0, 0
	s.back.clear()
	s.resetTabs()
}

func (s *Screen) resetTabs() {
	s.tabs = make([]bool, s.cols)
	for i := 8; i < s.cols; i += 8 {
		s.tabs[i] = true
	}
}

func (s *Screen) blankLines(n int) [][]cell {
	lines := make([][]cell, n)
	cells := make([]cell, n*s.cols)
	for i := range lines {
		lines[i] = cells[i*s.cols : (i+1)*s.cols : (i+1)*s.cols]
	}
	return lines
}

// Write follows the output of a program. It never fails.
func (s *Screen) Write(b []byte) (int, error) {
	s.parser.feed(s, b)
	return len(b), nil
}

// Size returns the number of rows and columns.
func (s *Screen) Size() (rows, cols int) { return s.rows, s.cols }

// Cursor returns the position of the cursor, from zero, and whether it is shown.
func (s *Screen) Cursor() (row, col int, visible bool) {
	return s.page.cursor.row, s.page.cursor.col, s.modes.is(25)
}

// Alternate reports whether the alternate screen is shown.
func (s *Screen) Alternate() bool { return s.page == &s.pages[1] }

// Rows returns the text of the rows, without spaces at their ends.
func (s *Screen) Rows() []string {
	rows := make([]string, s.rows)
	for i, line := range s.page.lines {
		var b strings.Builder
		for _, c := range line {
			switch {
			case c.char != 0:
				b.WriteRune(c.char)
				b.WriteString(c.marks)
			case c.width == tail:
			default:
				b.WriteByte(' ')
			}
		}
		rows[i] = strings.TrimRight(b.String(), " ")
	}
	return rows
}

// print draws a character at the cursor.
func (s *Screen) print(r rune) {
	p := s.page
	if set := s.charsets[s.shift]; set == '0' && r >= '`' && r <= '~' {
		r = graphics[r-'`']
	}
	width := 1
	if r >= 0x300 {
		width = visible.RuneWidth(r)
		if width == 0 || unicode.Is(unicode.Cf, r) {
			s.combine(r)
			return
		}
	} else if r >= 0x7f && r < 0xa0 || r == 0xad {
		return
	}
	if width > s.cols {
		return
	}
	c := &p.cursor
	if c.wrap || c.col+width > s.cols {
		if s.modes.is(7) {
			c.col, c.wrap = 0, false
			s.lineFeed()
		} else {
			c.col, c.wrap = s.cols-width, false
		}
	}
	line := p.lines[c.row]
	if s.modes.insert {
		s.insertCells(width)
	}
	s.split(line, c.col, c.col+width)
	line[c.col] = cell{char: r, width: uint8(width), style: c.pen}
	if width == 2 {
		line[c.col+1] = cell{width: tail, style: c.pen}
	}
	s.last = r
	if c.col += width; c.col >= s.cols {
		c.col, c.wrap = s.cols-1, true
	}
}

// tail is the width of the second half of a wide character.
const tail = 3

// combine adds a character to the one before the cursor.
func (s *Screen) combine(r rune) {
	c := &s.page.cursor
	line := s.page.lines[c.row]
	col := c.col
	if !c.wrap {
		col--
	}
	if col > 0 && line[col].width == tail {
		col--
	}
	if col < 0 || line[col].char == 0 || len(line[col].marks)+utf8.RuneLen(r) > maxMarks {
		return
	}
	line[col].marks += string(r)
}

// split blanks the other halves of wide characters that are cut by a change of
// the columns from first to the one before end.
func (s *Screen) split(line []cell, first, end int) {
	if first > 0 && first < len(line) && line[first].width == tail {
		line[first-1] = cell{style: style{background: line[first-1].style.background}}
	}
	if end < len(line) && line[end].width == tail {
		line[end] = cell{style: style{background: line[end].style.background}}
	}
}

// blank is an erased cell: it has the colour of the background.
func (s *Screen) blank() cell {
	return cell{style: style{background: s.page.cursor.pen.background}}
}

// erase erases columns of a row.
func (s *Screen) erase(row, first, end int) {
	line := s.page.lines[row]
	end = min(end, s.cols)
	if first >= end {
		return
	}
	s.split(line, first, end)
	fill(line[first:end], s.blank())
}

func fill(cells []cell, c cell) {
	for i := range cells {
		cells[i] = c
	}
}

// insertCells inserts blanks at the cursor.
func (s *Screen) insertCells(n int) {
	c := &s.page.cursor
	line := s.page.lines[c.row]
	n = min(n, s.cols-c.col)
	s.split(line, c.col, c.col)
	s.split(line, s.cols-n, s.cols)
	copy(line[c.col+n:], line[c.col:])
	fill(line[c.col:c.col+n], s.blank())
}

// deleteCells deletes characters at the cursor.
func (s *Screen) deleteCells(n int) {
	c := &s.page.cursor
	line := s.page.lines[c.row]
	n = min(n, s.cols-c.col)
	s.split(line, c.col, c.col+n)
	copy(line[c.col:], line[c.col+n:])
	fill(line[s.cols-n:], s.blank())
}

// scroll moves the rows from first to the one before end up by n, or down if n
// is negative.
func (s *Screen) scroll(first, end, n int) {
	lines := s.page.lines[first:end]
	size := len(lines)
	switch {
	case n == 0 || size == 0:
		return
	case n >= size || -n >= size:
	case n > 0:
		rotate(lines, n)
	default:
		rotate(lines, size+n)
	}
	if n > 0 && size == s.rows {
		s.page.scrolled += n
		s.page.redrawn = s.page.redrawn || s.page.scrolled >= s.rows
	}
	from, to := max(0, size-n), size
	if n < 0 {
		from, to = 0, min(size, -n)
	}
	for _, line := range lines[from:to] {
		fill(line, s.blank())
	}
}

// rotate moves the first n lines to the end.
func rotate(lines [][]cell, n int) {
	if n == 1 { // common
		first := lines[0]
		copy(lines, lines[1:])
		lines[len(lines)-1] = first
		return
	}
	moved := append([][]cell(nil), lines[:n]...)
	copy(lines, lines[n:])
	copy(lines[len(lines)-n:], moved)
}

// lineFeed moves the cursor down, and scrolls at the bottom.
func (s *Screen) lineFeed() {
	c := &s.page.cursor
	switch {
	case c.row == s.bottom-1:
		s.scrollOff(1)
	case c.row < s.rows-1:
		c.row++
	}
	c.wrap = false
}

// moveTo moves the cursor to a position within the screen.
func (s *Screen) moveTo(row, col int) {
	c := &s.page.cursor
	c.row, c.col, c.wrap = min(max(row, 0), s.rows-1), min(max(col, 0), s.cols-1), false
}

// moveRow moves the cursor up or down. It does not leave the part that scrolls.
func (s *Screen) moveRow(n int) {
	c := &s.page.cursor
	first, last := 0, s.rows-1
	if n < 0 && c.row >= s.top {
		first = s.top
	}
	if n > 0 && c.row < s.bottom {
		last = s.bottom - 1
	}
	s.moveTo(min(max(c.row+n, first), last), c.col)
}

// Resize changes the size. What does not fit is cut: at the top if the cursor
// would be lost, and on the right.
func (s *Screen) Resize(rows, cols int) {
	rows, cols = min(max(rows, 1), maxRows), min(max(cols, 1), maxCols)
	if rows == s.rows && cols == s.cols {
		return
	}
	old := s.cols
	s.rows, s.cols = rows, cols
	for i := range s.pages {
		p := &s.pages[i]
		lines := p.lines
		if cut := p.cursor.row - (rows - 1); cut > 0 {
			if i == 0 {
				s.back.add(lines[:cut])
			}
			lines = lines[cut:]
			p.cursor.row -= cut
			p.saved.row = max(0, p.saved.row-cut)
		}
		p.lines = s.blankLines(rows)
		for k := range min(rows, len(lines)) {
			copy(p.lines[k], lines[k])
			if cols < old && lines[k][cols].width == tail {
				p.lines[k][cols-1] = cell{}
			}
		}
		for _, c := range []*cursor{&p.cursor, &p.saved} {
			c.row, c.wrap = min(c.row, rows-1), false
			c.col = min(c.col, cols-1)
		}
	}
	s.top, s.bottom = 0, rows
	s.resetTabs()
}
