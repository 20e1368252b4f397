package prompt

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// screen is the part of the terminal that the editor has painted.
type screen struct {
	painted bool
	row     int   // of the cursor, counted from the first painted row
	column  int   // of the cursor
	widths  []int // columns of each painted row
}

// page collects the rows of a painting.
type page struct {
	rows    []string
	widths  []int
	b       strings.Builder // the row that is being filled
	width   int             // its columns
	columns int             // that a row may have
	now     style
	size    func(rune) int // columns of a character
}

// put adds a character to the page.
func (p *page) put(r rune, s style) {
	switch w := p.size(r); {
	case r == '\t':
		for range oneLevel {
			p.put(' ', s)
		}
	case r < ' ' || r == 0x7f:
		p.put('^', s)
		p.put(r^0x40, s)
	default:
		if p.width+w > p.columns {
			p.end()
		}
		p.now = restyle(&p.b, p.now, s)
		p.b.WriteRune(r)
		p.width += w
	}
}

// label adds a text that may have escape sequences.
func (p *page) label(text string) {
	for text != "" {
		if n := sequenceLength(text); n > 0 {
			p.b.WriteString(text[:n])
			text = text[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		p.put(r, plain)
		text = text[n:]
	}
}

// sequenceLength is the length of the control sequence that text begins with, or
// zero.
func sequenceLength(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	for i := 2; i < len(text); i++ {
		if text[i] >= '@' && text[i] <= '~' {
			return i + 1
		}
	}
	return len(text)
}

// end ends the row.
func (p *page) end() {
	now := p.now
	restyle(&p.b, now, plain)
	p.rows, p.widths = append(p.rows, p.b.String()), append(p.widths, p.width)
	p.b.Reset()
	p.width, p.now = 0, plain
}

// layout returns the rows of the text and where the cursor is.
func (e *Editor) layout(columns int) (p *page, row, column int) {
	p = &page{columns: max(columns-1, 2), size: e.c.Width} // no row fills the line: the cursor would wrap
	p.label(e.mode.First)
	var look []style
	if e.c.Colour && !e.mode.Line {
		look = styles(e.text)
	}
	if !e.mode.Secret {
		for i, r := range e.text {
			if i == e.at {
				row, column = len(p.rows), p.width
			}
			if r == '\n' {
				p.end()
				p.label(e.mode.More)
				continue
			}
			s := plain
			if look != nil {
				s = look[i]
			}
			p.put(r, s)
		}
	}
	if e.at == len(e.text) || e.mode.Secret {
		row, column = len(p.rows), p.width
	}
	p.end()
	return p, row, column
}

// paint shows the text, the cursor, and what is below the text.
func (e *Editor) paint() {
	columns, height := e.c.Size()
	p, row, column := e.layout(columns)
	below := e.below(columns)
	// The rows around the cursor, if not all fit.
	top := 0
	if room := max(height-len(below), 1); len(p.rows) > room {
		top = min(max(0, row-room+1), len(p.rows)-room)
		if e.top <= row && e.top+room > row {
			top = min(e.top, len(p.rows)-room) // scroll only if necessary
		}
		p.rows, p.widths = p.rows[top:top+room], p.widths[top:top+room]
	}
	e.top = top
	for _, text := range below {
		p.rows, p.widths = append(p.rows, text), append(p.widths, columns-1)
	}
	e.show(p, row-top, column)
}

// show writes the rows over the last painting and puts the cursor into place.
func (e *Editor) show(p *page, row, column int) {
	var b strings.Builder
	e.home(&b)
	for i, text := range p.rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[K")
		b.WriteString(text)
	}
	b.WriteString("\x1b[J")
	if up := len(p.rows) - 1 - row; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteByte('\r')
	if column > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", column)
	}
	e.screen = screen{painted: true, row: row, column: column, widths: slices.Clone(p.widths)}
	e.write(b.String())
}

// home writes what moves the cursor to the first painted row.
func (e *Editor) home(b *strings.Builder) {
	if !e.screen.painted {
		return
	}
	b.WriteByte('\r')
	if e.screen.row > 0 {
		fmt.Fprintf(b, "\x1b[%dA", e.screen.row)
	}
}

// leave shows the whole text once more and puts the cursor below it.
func (e *Editor) leave() {
	columns, _ := e.c.Size()
	p, _, _ := e.layout(columns)
	e.show(p, len(p.rows)-1, 0)
	e.write("\r\n\x1b[?2004l")
	e.screen = screen{}
}

// erase removes the painting.
func (e *Editor) erase() {
	var b strings.Builder
	e.home(&b)
	b.WriteString("\x1b[J")
	e.screen = screen{}
	e.write(b.String())
}

func (e *Editor) write(text string) {
	// The next read fails if the terminal is gone.
	_, _ = e.c.Screen.Write([]byte(text))
}

// below returns the rows below the text: a note and the completions.
func (e *Editor) below(columns int) []string {
	var rows []string
	if e.search != nil {
		rows = append(rows, cutTo("search: "+string(e.search.query)+e.search.state, columns-1, e.c.Width))
	}
	if e.note != "" {
		rows = append(rows, cutTo(e.note, columns-1, e.c.Width))
	}
	return append(rows, e.list...)
}

// cutTo shortens text to a number of columns.
func cutTo(text string, columns int, size func(rune) int) string {
	used := 0
	for i, r := range text {
		if used += size(r); used > columns {
			return text[:i]
		}
	}
	return text
}

// inColumns lays out names in columns, as ls does, in at most this many rows.
func inColumns(names []string, columns, limit int, size func(rune) int) []string {
	width := func(s string) (n int) {
		for _, r := range s {
			n += size(r)
		}
		return n
	}
	widest := 0
	for _, n := range names {
		widest = max(widest, width(n))
	}
	across := max(1, columns/(widest+2))
	more := ""
	if room := max(limit, 2) - 1; len(names) > across*room {
		more = fmt.Sprintf("… %d more", len(names)-across*room)
		names = names[:across*room]
	}
	rows := make([]string, (len(names)+across-1)/across)
	for r := range rows {
		var b strings.Builder
		for c := r; c < len(names); c += len(rows) {
			b.WriteString(names[c])
			if c+len(rows) < len(names) {
				b.WriteString(strings.Repeat(" ", widest+2-width(names[c])))
			}
		}
		rows[r] = cutTo(b.String(), columns-1, size)
	}
	if more != "" {
		rows = append(rows, more)
	}
	return rows
}
