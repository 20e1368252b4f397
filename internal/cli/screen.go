package cli

import (
	"bytes"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/visible"
)

// screen returns the writer for what runs wrote. On a terminal it filters what
// would do more than show text, unless --raw asks for everything; a pipe or a
// file gets every byte.
func (a *app) screen(f *os.File) io.Writer {
	if a.raw || !isTerminal(f) {
		return f
	}
	return &screenFilter{w: f}
}

// isHidden reports whether a character is not seen, or changes the order in
// which others are seen.
func isHidden(r rune) bool { return visible.Hidden(r) }

// plain is text on one line for a list or a question: controls and hidden
// characters are shown escaped.
func plain(s string) string { return visible.Line(s) }

// screenFilter passes on text, colours, cursor movement and modes. It drops
// sequences that reach beyond the screen (the clipboard, the title, printing),
// those that make the terminal answer as if the user typed, and hidden
// characters.
type screenFilter struct {
	w     io.Writer
	state screenState
	held  []byte // an incomplete sequence or character
	size  int    // of the string that is dropped
	out   []byte
}

type screenState uint8

const (
	inText    screenState = iota
	inEscape              // after ESC
	inControl             // in a control sequence: ESC [
	inCommand             // in a string for the terminal: ESC ]
	inString              // in another string: ESC P, X, ^, _ and k
)

// Sizes after which a sequence is given up: text is not lost to one that never
// ends.
const (
	maxControl = 256
	maxString  = 1 << 20
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
)

// Write implements [io.Writer].
func (f *screenFilter) Write(b []byte) (int, error) {
	f.out = f.out[:0]
	for _, c := range b {
		f.add(c)
	}
	if len(f.out) == 0 {
		return len(b), nil
	}
	if _, err := f.w.Write(f.out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *screenFilter) add(c byte) {
	switch {
	case c == esc:
		f.flushText()
		f.state, f.held = inEscape, append(f.held[:0], c)
		return
	case f.state == inText:
		f.text(c)
		return
	case c == can || c == sub:
		f.reset()
		return
	}
	switch f.state {
	case inEscape:
		f.escape(c)
	case inControl:
		f.control(c)
	case inCommand, inString:
		f.size++
		switch {
		case f.state == inCommand && c == '\n':
			f.out = append(f.out, c)
			f.reset()
		case f.state == inCommand && c == bel, f.size > maxString:
			f.reset()
		}
	}
}

func (f *screenFilter) reset() { f.state, f.held, f.size = inText, f.held[:0], 0 }

// text passes on one character when it is complete.
func (f *screenFilter) text(c byte) {
	if len(f.held) == 0 && c < utf8.RuneSelf {
		if c != 0x05 { // a question to the terminal
			f.out = append(f.out, c)
		}
		return
	}
	if c < utf8.RuneSelf || utf8.RuneStart(c) { // the character before is incomplete
		f.flushText()
		if c < utf8.RuneSelf {
			f.text(c)
			return
		}
	}
	if f.held = append(f.held, c); utf8.FullRune(f.held) {
		f.flushText()
	}
}

// flushText passes on the character that is held, unless it is hidden.
func (f *screenFilter) flushText() {
	if f.state == inText && len(f.held) > 0 {
		if r, n := utf8.DecodeRune(f.held); n == 1 || !isHidden(r) && r >= 0xa0 {
			f.out = append(f.out, f.held...)
		}
		f.held = f.held[:0]
	}
}

// escape handles the bytes after ESC.
func (f *screenFilter) escape(c byte) {
	switch {
	case len(f.held) == 1 && c == '[':
		f.state, f.held = inControl, append(f.held, c)
	case len(f.held) == 1 && c == ']':
		f.state = inCommand
	case len(f.held) == 1 && bytes.IndexByte([]byte("PX^_k"), c) >= 0:
		f.state = inString
	case c >= ' ' && c < '0' && len(f.held) < maxControl: // more follows
		f.held = append(f.held, c)
	case c < ' ': // acts within a sequence
		if c != 0x05 {
			f.out = append(f.out, c)
		}
	case c >= 0x7f || len(f.held) == 1 && (c == 'Z' || c == '\\'): // Z asks who the terminal is
		f.reset()
	default:
		f.out = append(append(f.out, f.held...), c)
		f.reset()
	}
}

// control handles the bytes of a control sequence.
func (f *screenFilter) control(c byte) {
	switch {
	case c < ' ':
		if c != 0x05 {
			f.out = append(f.out, c)
		}
	case c >= 0x7f || len(f.held) >= maxControl:
		f.reset()
	case c < '@':
		f.held = append(f.held, c)
	default:
		if f.held = append(f.held, c); !reachesBeyond(f.held[2:]) {
			f.out = append(f.out, f.held...)
		}
		f.reset()
	}
}

// reachesBeyond reports whether a control sequence, without ESC [, makes the
// terminal answer, changes its window, or prints.
func reachesBeyond(seq []byte) bool {
	parameters, final := seq[:len(seq)-1], seq[len(seq)-1]
	switch final {
	case 'n', 'c', 't', 'x', 'i':
		return true
	case 'p', 'w', 'u', 'y', '|':
		return bytes.ContainsAny(parameters, "$*&?+")
	case 'q':
		return bytes.HasPrefix(parameters, []byte(">"))
	case 'S':
		return bytes.HasPrefix(parameters, []byte("?"))
	}
	return false
}
