package screen

// graphics are the line drawing characters, from ` to ~.
var graphics = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// control acts on a control character.
func (s *Screen) control(c byte) {
	s.last = 0
	at := &s.page.cursor
	switch c {
	case '\b':
		s.moveTo(at.row, at.col-1)
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.lineFeed()
		if s.modes.newline {
			at.col = 0
		}
	case '\r':
		at.col, at.wrap = 0, false
	case 0x0e, 0x0f:
		s.shift = int(0x0f - c)
	}
}

// tab moves the cursor by tab stops, backwards if n is negative.
func (s *Screen) tab(n int) {
	at := &s.page.cursor
	col, step := at.col, 1
	if n < 0 {
		n, step = -n, -1
	}
	for range min(n, s.cols) {
		col += step
		for col > 0 && col < s.cols-1 && !s.tabs[col] {
			col += step
		}
	}
	s.moveTo(at.row, col)
}

// escape acts on a sequence without parameters.
func (s *Screen) escape(intermediate, final byte) {
	s.modes.escape(intermediate, final)
	s.last = 0
	if intermediate >= '(' && intermediate <= '+' {
		s.charsets[intermediate-'('] = final
		return
	}
	if intermediate == '#' && final == '8' {
		for _, line := range s.page.lines {
			fill(line, cell{char: 'E', width: 1})
		}
		s.moveTo(0, 0)
		return
	}
	if intermediate != 0 {
		return
	}
	at := &s.page.cursor
	switch final {
	case '7':
		s.saveCursor()
	case '8':
		s.restoreCursor()
	case 'D':
		s.lineFeed()
	case 'E':
		at.col = 0
		s.lineFeed()
	case 'M':
		if at.row == s.top {
			s.scroll(s.top, s.bottom, -1)
			at.wrap = false
		} else {
			s.moveTo(at.row-1, at.col)
		}
	case 'H':
		s.tabs[at.col] = true
	case 'n', 'o':
		s.shift = 2 + int(final-'n')
	case 'c':
		s.reset()
	}
}

func (s *Screen) saveCursor() {
	p := s.page
	p.saved, p.kept = p.cursor, true
	p.saved.origin, p.saved.charsets, p.saved.shift = s.modes.is(6), s.charsets, s.shift
}

func (s *Screen) restoreCursor() {
	p := s.page
	p.cursor = p.saved
	s.modes.change(true, 6, p.saved.origin)
	s.charsets, s.shift = p.saved.charsets, p.saved.shift
	s.moveTo(p.cursor.row, p.cursor.col)
	p.cursor.wrap = p.saved.wrap && p.cursor.col == s.cols-1
}

// sequence acts on a control sequence.
func (s *Screen) sequence(prefix, intermediate, final byte, params []param) {
	if final != 'b' {
		s.last = 0
	}
	s.modes.sequence(prefix, intermediate, final, params)
	switch {
	case prefix == '?' && intermediate == 0 && (final == 'h' || final == 'l'):
		for _, p := range params {
			s.privateMode(p.value, final == 'h')
		}
	case prefix == 0 && intermediate == '!' && final == 'p':
		s.top, s.bottom = 0, s.rows
		s.page.cursor.pen, s.charsets, s.shift = style{}, [4]byte{}, 0
		s.page.saved, s.page.kept = cursor{}, false
	case prefix == '?' && intermediate == 0 && (final == 'J' || final == 'K'):
		s.change(final, params) // selective: no character is protected
	case prefix == 0 && intermediate == 0:
		if !s.move(final, params) {
			s.change(final, params)
		}
	}
}

// privateMode has the effects of a mode on the screen.
func (s *Screen) privateMode(number int, set bool) {
	switch number {
	case 3: // 80 or 132 columns: the size stays, the screen is cleared
		s.eraseRows(0, s.rows)
		s.top, s.bottom = 0, s.rows
		s.moveTo(0, 0)
	case 6:
		s.home()
	case 1048:
		if set {
			s.saveCursor()
		} else {
			s.restoreCursor()
		}
	case 47, 1047, 1049:
		main, other := &s.pages[0], &s.pages[1]
		switch {
		case set && s.page == main:
			if number == 1049 {
				s.saveCursor()
			}
			at := main.cursor
			s.page = other
			other.cursor = at
			if number == 1049 {
				other.redrawn = true
				s.eraseRows(0, s.rows)
			}
		case !set && s.page == other:
			at := other.cursor
			if number == 1047 {
				s.eraseRows(0, s.rows)
			}
			s.page = main
			main.cursor = at
		}
		if !set && number == 1049 {
			s.restoreCursor()
		}
	}
}

// home moves the cursor to the first position.
func (s *Screen) home() {
	if s.modes.is(6) {
		s.moveTo(s.top, 0)
	} else {
		s.moveTo(0, 0)
	}
}

// goTo moves the cursor to a row and a column, counted from the part that
// scrolls in origin mode.
func (s *Screen) goTo(row, col int) {
	if s.modes.is(6) {
		row = min(row+s.top, s.bottom-1)
	}
	s.moveTo(row, col)
}

// move acts on sequences that move the cursor, and reports whether this is one.
func (s *Screen) move(final byte, params []param) bool {
	at := &s.page.cursor
	n := get(params, 0, 1)
	switch final {
	case 'A':
		s.moveRow(-n)
	case 'B', 'e':
		s.moveRow(n)
	case 'C', 'a':
		s.moveTo(at.row, at.col+n)
	case 'D':
		s.moveTo(at.row, at.col-n)
	case 'E':
		s.moveRow(n)
		at.col = 0
	case 'F':
		s.moveRow(-n)
		at.col = 0
	case 'G', '`':
		s.moveTo(at.row, n-1)
	case 'H', 'f':
		s.goTo(n-1, get(params, 1, 1)-1)
	case 'd':
		s.goTo(n-1, at.col)
	case 'I':
		s.tab(n)
	case 'Z':
		s.tab(-n)
	case 's':
		s.saveCursor()
	case 'u':
		s.restoreCursor()
	case 'r':
		top, bottom := n-1, min(get(params, 1, s.rows), s.rows)
		if top < bottom-1 {
			s.top, s.bottom = top, bottom
			s.home()
		}
	default:
		return false
	}
	return true
}

// change acts on sequences that change characters, styles and tab stops.
func (s *Screen) change(final byte, params []param) {
	at := &s.page.cursor
	n := get(params, 0, 1)
	scrolls := at.row >= s.top && at.row < s.bottom
	switch final {
	case '@':
		s.insertCells(n)
		at.wrap = false
	case 'P':
		s.deleteCells(n)
		at.wrap = false
	case 'X':
		s.erase(at.row, at.col, at.col+min(n, s.cols))
		at.wrap = false
	case 'J':
		s.eraseDisplay(get(params, 0, 0))
	case 'K':
		first, end := at.col, s.cols
		switch get(params, 0, 0) {
		case 1:
			first, end = 0, at.col+1
		case 2:
			first = 0
		}
		s.erase(at.row, first, end)
		at.wrap = false
	case 'L':
		if scrolls {
			s.scroll(at.row, s.bottom, -min(n, s.rows))
			at.col, at.wrap = 0, false
		}
	case 'M':
		if scrolls {
			s.scroll(at.row, s.bottom, min(n, s.rows))
			at.col, at.wrap = 0, false
		}
	case 'S':
		s.scrollOff(min(n, s.rows))
	case 'T':
		if len(params) <= 1 { // more ask for mouse tracking
			s.scroll(s.top, s.bottom, -min(n, s.rows))
		}
	case 'b':
		if s.last != 0 { // only after a character
			for range min(n, s.rows*s.cols) {
				s.print(s.last)
			}
		}
	case 'g':
		switch get(params, 0, 0) {
		case 0:
			s.tabs[at.col] = false
		case 3:
			clear(s.tabs)
		}
	case 'm':
		at.pen.apply(params)
	}
}

// eraseDisplay erases a part of the screen.
func (s *Screen) eraseDisplay(part int) {
	at := &s.page.cursor
	switch part {
	case 0:
		s.page.redrawn = s.page.redrawn || at.row == 0 && at.col == 0
		s.erase(at.row, at.col, s.cols)
		s.eraseRows(at.row+1, s.rows)
	case 1:
		s.eraseRows(0, at.row)
		s.erase(at.row, 0, at.col+1)
	case 2:
		s.page.redrawn = true
		s.eraseRows(0, s.rows)
	case 3:
		s.back.clear()
		return
	default:
		return
	}
	at.wrap = false
}

func (s *Screen) eraseRows(first, end int) {
	for row := first; row < end; row++ {
		s.erase(row, 0, s.cols)
	}
}
