package cli_test

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// emulator is the screen of a terminal, with the sequences that the prompt writes.
type emulator struct {
	columns, rows int
	text          [][]glyph
	row, column   int
	style         string
	partial       []byte // an incomplete sequence or character
}

// glyph is a character on the screen.
type glyph struct {
	char  rune
	style string // parameters of the last style sequence; empty is plain
}

func newEmulator(columns, rows int) *emulator {
	e := &emulator{columns: columns, rows: rows}
	e.text = make([][]glyph, rows)
	return e
}

// Write implements [io.Writer].
func (e *emulator) Write(b []byte) (int, error) {
	e.partial = append(e.partial, b...)
	for len(e.partial) > 0 {
		n := e.take(e.partial)
		if n == 0 {
			break
		}
		e.partial = e.partial[n:]
	}
	return len(b), nil
}

// take handles the first character or sequence and returns its length, or zero if
// it is incomplete.
func (e *emulator) take(b []byte) int {
	switch b[0] {
	case '\r':
		e.column = 0
	case '\n':
		e.down()
	case '\b':
		e.column = max(0, e.column-1)
	case 0x1b:
		return e.escape(b)
	default:
		if b[0] < ' ' {
			return 1
		}
		if !utf8.FullRune(b) {
			return 0
		}
		r, n := utf8.DecodeRune(b)
		e.put(r)
		return n
	}
	return 1
}

func (e *emulator) down() {
	if e.row++; e.row == e.rows {
		e.text = append(e.text[1:], nil)
		e.row--
	}
}

func (e *emulator) put(r rune) {
	if e.column == e.columns {
		e.column = 0
		e.down()
	}
	line := e.text[e.row]
	for len(line) <= e.column {
		line = append(line, glyph{char: ' '})
	}
	line[e.column] = glyph{r, e.style}
	e.text[e.row] = line
	e.column++
}

func (e *emulator) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if strings.IndexByte("_P]", b[1]) >= 0 { // a string
		end := strings.Index(string(b), "\x1b\\")
		if bell := strings.IndexByte(string(b), 7); b[1] == ']' && bell >= 0 && (end < 0 || bell < end) {
			return bell + 1
		}
		if end < 0 {
			return 0
		}
		return end + 2
	}
	if b[1] != '[' {
		return 2
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= '@' && b[i] <= '~' {
			e.sequence(string(b[2:i]), b[i])
			return i + 1
		}
	}
	return 0
}

func (e *emulator) sequence(parameters string, end byte) {
	n, err := strconv.Atoi(parameters)
	if err != nil {
		n = 1
	}
	switch end {
	case 'A':
		e.row = max(0, e.row-n)
	case 'B':
		e.row = min(e.rows-1, e.row+n)
	case 'C':
		e.column = min(e.columns-1, e.column+n)
	case 'D':
		e.column = max(0, e.column-n)
	case 'H':
		e.row, e.column = 0, 0
	case 'K':
		e.text[e.row] = e.text[e.row][:min(e.column, len(e.text[e.row]))]
	case 'J':
		if parameters == "2" {
			e.text = make([][]glyph, e.rows)
			return
		}
		e.sequence("", 'K')
		for r := e.row + 1; r < e.rows; r++ {
			e.text[r] = nil
		}
	case 'm':
		if e.style = parameters; parameters == "0" {
			e.style = ""
		}
	}
}

// line returns the text of a row, without the spaces at its end.
func (e *emulator) line(row int) string {
	var b strings.Builder
	for _, g := range e.text[row] {
		b.WriteRune(g.char)
	}
	return strings.TrimRight(b.String(), " ")
}

// String returns the text of the screen, without the empty rows at its end.
func (e *emulator) String() string {
	var b strings.Builder
	for row := range e.text {
		b.WriteString(e.line(row) + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// styleOf returns the style of the last occurrence of a word on the screen, and
// whether the word is there in one style.
func (e *emulator) styleOf(word string) (style string, ok bool) {
	for row := e.rows - 1; row >= 0; row-- {
		line := e.line(row)
		i := strings.LastIndex(line, word)
		if i < 0 {
			continue
		}
		from := utf8.RuneCountInString(line[:i])
		style = e.text[row][from].style
		for _, g := range e.text[row][from : from+utf8.RuneCountInString(word)] {
			if g.style != style {
				return "", false
			}
		}
		return style, true
	}
	return "", false
}
