package screen

import (
	"fmt"
	"slices"
	"strconv"
)

// Modes are the settings of a terminal that programs change and that outlive
// what they draw: the alternate screen, the mouse, the keypad, the cursor. They
// follow the output that is written to them. The zero value is a terminal as
// it is after a reset.
type Modes struct {
	parser parser

	set       [len(modeList)]setting
	alternate int // the mode that switched to the alternate screen; zero on the main screen
	insert    bool
	newline   bool
	keypad    bool
	region    bool // a part of the screen scrolls
	styled    bool // characters had colours or attributes
	charsets  [2]byte
	shifted   bool
	shape     int      // of the cursor; zero is the default
	otherKeys int      // the value of modifyOtherKeys
	keyboard  [2][]int // flags of the kitty keyboard protocol: of the main and the alternate screen
}

// setting is whether a program set a mode.
type setting uint8

const (
	untouched setting = iota
	on
	off
)

// modeList are the private modes that have effects beyond the screen.
var modeList = [...]struct {
	number  int
	initial setting
}{
	{1, off}, {5, off}, {6, off}, {7, on}, {9, off}, {25, on}, {66, off},
	{1000, off}, {1001, off}, {1002, off}, {1003, off}, {1004, off}, {1005, off}, {1006, off}, {1007, off},
	{1015, off}, {1016, off}, {2004, off}, {2026, off}, {2031, off}, {2048, off},
}

// Write follows the output of a program. It never fails.
func (m *Modes) Write(b []byte) (int, error) {
	m.parser.skipText = true
	m.parser.feed((*modeHandler)(m), b)
	return len(b), nil
}

// Alternate reports whether the alternate screen is shown.
func (m *Modes) Alternate() bool { return m.alternate != 0 }

// is reports whether a private mode is on.
func (m *Modes) is(number int) bool {
	for i, mode := range modeList {
		if mode.number == number {
			return m.set[i] == on || m.set[i] == untouched && mode.initial == on
		}
	}
	return false
}

func (m *Modes) side() int {
	if m.alternate != 0 {
		return 1
	}
	return 0
}

// modeHandler handles sequences for Modes.
type modeHandler Modes

func (m *modeHandler) print(rune) {}

func (m *modeHandler) control(c byte) {
	if c == 0x0e || c == 0x0f {
		m.shifted = c == 0x0e
	}
}

func (m *modeHandler) escape(intermediate, final byte) { (*Modes)(m).escape(intermediate, final) }

func (m *modeHandler) sequence(prefix, intermediate, final byte, params []param) {
	(*Modes)(m).sequence(prefix, intermediate, final, params)
}

func (m *Modes) escape(intermediate, final byte) {
	switch {
	case intermediate == 0 && final == '=':
		m.keypad = true
	case intermediate == 0 && final == '>':
		m.keypad = false
	case intermediate == 0 && final == 'c':
		*m = Modes{parser: m.parser}
	case intermediate == '(' || intermediate == ')':
		m.charsets[intermediate-'('] = final
	}
}

func (m *Modes) sequence(prefix, intermediate, final byte, params []param) {
	switch {
	case intermediate == 0 && (final == 'h' || final == 'l') && (prefix == '?' || prefix == 0):
		for _, p := range params {
			m.change(prefix == '?', p.value, final == 'h')
		}
	case prefix == 0 && intermediate == 0 && final == 'r':
		m.region = len(params) > 0
	case prefix == 0 && intermediate == 0 && final == 'm':
		m.styled = m.styled || len(params) > 0
	case prefix == 0 && intermediate == ' ' && final == 'q':
		m.shape = get(params, 0, 0)
	case prefix == 0 && intermediate == '!' && final == 'p': // soft reset
		m.keypad, m.insert, m.region, m.charsets, m.shifted = false, false, false, [2]byte{}, false
		for _, number := range []int{1, 6, 25} {
			m.change(true, number, number == 25)
		}
	case prefix == '>' && intermediate == 0 && final == 'm' && get(params, 0, 0) == 4:
		m.otherKeys = get(params, 1, 0)
	case final == 'u' && intermediate == 0 && prefix != 0:
		m.changeKeyboard(prefix, params)
	}
}

// change sets or resets a mode.
func (m *Modes) change(private bool, number int, set bool) {
	switch {
	case !private && number == 4:
		m.insert = set
	case !private && number == 20:
		m.newline = set
	case !private:
	case number == 47 || number == 1047 || number == 1049:
		if !set {
			m.alternate = 0
		} else if m.alternate == 0 {
			m.alternate = number
			m.keyboard[1] = nil
		}
	default:
		for i := range modeList {
			if modeList[i].number != number {
				continue
			}
			if m.set[i] = off; set {
				m.set[i] = on
			}
		}
	}
}

// maxKeyboard bounds the stack of keyboard flags; the oldest are dropped.
const maxKeyboard = 16

func (m *Modes) changeKeyboard(prefix byte, params []param) {
	stack := &m.keyboard[m.side()]
	switch prefix {
	case '>':
		*stack = append(*stack, get(params, 0, 0))
		*stack = (*stack)[max(0, len(*stack)-maxKeyboard):]
	case '<':
		*stack = (*stack)[:max(0, len(*stack)-get(params, 0, 1))]
	case '=':
		if len(*stack) == 0 {
			*stack = append(*stack, 0)
		}
		flags := &(*stack)[len(*stack)-1]
		switch n := get(params, 0, 0); get(params, 1, 1) {
		case 1:
			*flags = n
		case 2:
			*flags |= n
		case 3:
			*flags &^= n
		}
	}
}

// Restore returns what a terminal in these modes needs to be as it was before a
// program changed it. It is empty if no program did.
func (m *Modes) Restore() []byte {
	var b []byte
	if n := len(m.keyboard[1]); n > 0 && m.alternate != 0 {
		b = fmt.Appendf(b, "\x1b[<%du", n)
	}
	if m.region {
		b = append(b, "\x1b7\x1b[r\x1b8"...) // it moves the cursor
	}
	if m.alternate != 0 {
		b = appendMode(b, m.alternate, false)
	}
	if n := len(m.keyboard[0]); n > 0 {
		b = fmt.Appendf(b, "\x1b[<%du", n)
	}
	for i, mode := range modeList {
		// Leaving the alternate screen may have brought origin mode back.
		if m.set[i] != untouched && (m.set[i] != mode.initial || mode.number == 6) {
			b = appendMode(b, mode.number, mode.initial == on)
		}
	}
	if m.insert {
		b = append(b, "\x1b[4l"...)
	}
	if m.newline {
		b = append(b, "\x1b[20l"...)
	}
	if m.keypad {
		b = append(b, "\x1b>"...)
	}
	for i, set := range m.charsets {
		if set != 0 { // also those that a restored cursor brings back
			b = append(b, esc, '('+byte(i), 'B')
		}
	}
	if m.shifted || m.charsets[1] != 0 {
		b = append(b, 0x0f)
	}
	if m.otherKeys != 0 {
		b = append(b, "\x1b[>4m"...)
	}
	if m.shape != 0 {
		b = append(b, "\x1b[0 q"...)
	}
	if m.styled || m.alternate != 0 {
		b = append(b, "\x1b[m"...)
	}
	return b
}

// hidden are the modes that apply does not set: the cursor is positioned first
// in origin mode, an update under way ends by itself, and a terminal answers at
// once when the last one is set.
var hidden = []int{6, 25, 2026, 2048}

// appendApply appends what puts a terminal into these modes, except for those
// that have to do with where and how characters are drawn.
func (m *Modes) appendApply(b []byte) []byte {
	for i, mode := range modeList {
		if m.set[i] != untouched && m.set[i] != mode.initial && !slices.Contains(hidden, mode.number) {
			b = appendMode(b, mode.number, m.set[i] == on)
		}
	}
	if m.newline {
		b = append(b, "\x1b[20h"...)
	}
	if m.keypad {
		b = append(b, "\x1b="...)
	}
	if m.otherKeys != 0 {
		b = fmt.Appendf(b, "\x1b[>4;%dm", m.otherKeys)
	}
	if m.shape != 0 {
		b = fmt.Appendf(b, "\x1b[%d q", m.shape)
	}
	for _, flags := range m.keyboard[m.side()] {
		b = fmt.Appendf(b, "\x1b[>%du", flags)
	}
	return b
}

func appendMode(b []byte, number int, set bool) []byte {
	b = append(b, "\x1b[?"...)
	b = strconv.AppendInt(b, int64(number), 10)
	if set {
		return append(b, 'h')
	}
	return append(b, 'l')
}
