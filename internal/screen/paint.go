package screen

import (
	"fmt"
	"slices"
	"strings"
)

// Paint returns the bytes that make a terminal of this size show the screen,
// with its cursor and modes, and after which the terminal takes the output that
// follows as the terminal of the program does. The terminal must be in the modes
// it had before any program changed them. What it showed moves to its
// scrollback, unless the main screen of the program is empty: then the output
// goes on below it.
func (s *Screen) Paint(rows, cols int) []byte {
	var b []byte
	main := &s.pages[0]
	if s.page == main && main.isEmpty() && !main.kept && !s.modes.is(6) && s.top == 0 && s.bottom == s.rows {
		// As it began: let it begin where the terminal is.
		b = s.modes.appendApply(b)
		b = main.cursor.pen.appendTo(b)
		return append(s.appendDrawing(b), s.parser.resume()...)
	}
	if s.page == main || !main.isEmpty() {
		b = fmt.Appendf(b, "\x1b[m\x1b[%dH", rows)
		b = append(b, strings.Repeat("\n", rows)...)
		b = append(b, "\x1b[H\x1b[2J"...)
		b = main.append(b, rows, cols)
	}
	if s.page != main {
		enter := appendMode(nil, s.modes.alternate, true)
		if main.kept && !main.isEmpty() { // entering saves this cursor
			b = main.saved.appendSave(b, rows, cols, enter)
		} else {
			b = append(b, enter...)
		}
		b = append(b, "\x1b[H\x1b[m\x1b[2J"...)
		b = s.page.append(b, rows, cols)
	}
	if s.page.kept {
		b = s.page.saved.appendSave(b, rows, cols, []byte("\x1b7"))
	}
	b = s.modes.appendApply(b)
	if s.top > 0 || s.bottom < s.rows {
		b = fmt.Appendf(b, "\x1b[%d;%dr", s.top+1, s.bottom)
	}
	b = s.appendCursor(b, rows, cols)
	b = s.appendDrawing(b)
	if c := &s.page.cursor; s.last != 0 && c.col > 0 && !c.wrap && !s.modes.insert && cols == s.cols {
		// The character again that may be repeated next.
		col := c.col - 1
		if s.page.lines[c.row][col].width == tail {
			col--
		}
		b = fmt.Appendf(b, "\x1b[%dD", c.col-col)
		b = s.page.lines[c.row][col].append(b)
	}
	return append(b, s.parser.resume()...)
}

// appendDrawing appends how the next characters are drawn.
func (s *Screen) appendDrawing(b []byte) []byte {
	b = appendCharsets(b, s.charsets, s.shift)
	if s.modes.insert {
		b = append(b, "\x1b[4h"...)
	}
	if s.modes.is(25) {
		return append(b, "\x1b[?25h"...)
	}
	return append(b, "\x1b[?25l"...)
}

func appendCharsets(b []byte, charsets [4]byte, shift int) []byte {
	for i, set := range charsets {
		if set != 0 && set != 'B' {
			b = append(b, esc, '('+byte(i), set)
		}
	}
	switch shift {
	case 1:
		b = append(b, 0x0e)
	case 2, 3:
		b = append(b, esc, 'n'+byte(shift-2))
	}
	return b
}

// appendCursor appends the position of the cursor and its style.
func (s *Screen) appendCursor(b []byte, rows, cols int) []byte {
	c := s.page.cursor
	row := c.row
	if s.modes.is(6) {
		b = append(b, "\x1b[?6h"...)
		row -= s.top
	}
	col := c.col
	if c.wrap && s.page.lines[c.row][col].width == tail {
		col--
	}
	b = appendPosition(b, min(max(row, 0), rows-1), min(col, cols-1))
	if c.wrap && cols == s.cols { // the last character again, so that the next one wraps
		last := &s.page.lines[c.row][col]
		b = last.style.appendTo(b)
		b = last.append(b)
	}
	return c.pen.appendTo(b)
}

// appendSave appends a sequence that saves the cursor, with this cursor around
// it.
func (c *cursor) appendSave(b []byte, rows, cols int, save []byte) []byte {
	if c.origin {
		b = append(b, "\x1b[?6h"...)
	}
	b = appendPosition(b, min(c.row, rows-1), min(c.col, cols-1))
	b = c.pen.appendTo(b)
	b = appendCharsets(b, c.charsets, c.shift)
	b = append(b, save...)
	if c.origin {
		b = append(b, "\x1b[?6l"...)
	}
	for i, set := range c.charsets {
		if set != 0 && set != 'B' {
			b = append(b, esc, '('+byte(i), 'B')
		}
	}
	if c.shift != 0 {
		b = append(b, 0x0f)
	}
	return b
}

func appendPosition(b []byte, row, col int) []byte {
	return fmt.Appendf(b, "\x1b[%d;%dH", row+1, col+1)
}

// isEmpty reports whether a page is as at the beginning.
func (p *page) isEmpty() bool {
	at := cursor{row: max(p.cursor.row, p.saved.row), col: max(p.cursor.col, p.saved.col), pen: p.saved.pen, charsets: p.saved.charsets, shift: p.saved.shift}
	return at == (cursor{}) && !slices.ContainsFunc(p.lines, func(line []cell) bool {
		return slices.ContainsFunc(line, func(c cell) bool { return c != (cell{}) })
	})
}

// append appends the characters of a page, as far as they fit.
func (p *page) append(b []byte, rows, cols int) []byte {
	pen := style{}
	for row, line := range p.lines[:min(rows, len(p.lines))] {
		line = line[:min(cols, len(line))]
		end := len(line)
		for end > 0 && line[end-1] == (cell{}) {
			end--
		}
		if end == 0 {
			continue
		}
		b = appendPosition(b, row, 0)
		for col := 0; col < end; col++ {
			c := &line[col]
			if c.width == tail || c.width == 2 && col+1 == cols {
				continue
			}
			if c.style != pen {
				pen = c.style
				b = pen.appendTo(b)
			}
			b = c.append(b)
		}
	}
	if pen != (style{}) {
		b = append(b, "\x1b[m"...)
	}
	return b
}

func (c *cell) append(b []byte) []byte {
	if c.char == 0 {
		return append(b, ' ')
	}
	return append(append(b, string(c.char)...), c.marks...)
}
