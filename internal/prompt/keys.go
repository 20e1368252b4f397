package prompt

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// key is a key that the user pressed, a text that the user pasted, or a reply of
// the terminal.
type key struct {
	name string // such as "a", "enter", "ctrl+left", "alt+f"
	text string // what it inserts, if anything
}

// Names of what is not a key.
const (
	pasted     = "paste"      // text is what was pasted
	attributes = "attributes" // text is the reply to a question for the terminal's attributes
	graphics   = "graphics"   // text is the reply to a question for kitty graphics
)

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// maxSequence limits an escape sequence: a longer one is no key.
const maxSequence = 256

// controls are the control characters that have names of their own.
var controls = map[byte]string{'\r': "enter", '\t': "tab", 0x7f: "backspace", 0x08: "backspace", 0x00: "ctrl+space"}

// finals are the last characters of control sequences.
var finals = map[byte]string{
	'A': "up", 'B': "down", 'C': "right", 'D': "left", 'H': "home", 'F': "end", 'Z': "shift+tab", 'M': "enter",
}

// tildes are the first numbers of control sequences that end with a tilde.
var tildes = map[int]string{1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pgup", 6: "pgdown", 7: "home", 8: "end"}

// decode reads the first key of b and returns its length. It returns zero if more
// bytes are needed; final says that none will come.
func decode(b []byte, final bool) (key, int) {
	c := b[0]
	switch {
	case c == 0x1b:
		return decodeEscape(b, final)
	case c < ' ' || c == 0x7f:
		return decodeControl(c), 1
	}
	if !utf8.FullRune(b) && !final {
		return key{}, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError && n == 1 || r >= 0x80 && r < 0xa0 {
		return key{}, n
	}
	return key{name: string(r), text: string(r)}, n
}

func decodeControl(c byte) key {
	if name, ok := controls[c]; ok {
		return key{name: name}
	}
	return key{name: "ctrl+" + strings.ToLower(string(rune(c|0x40)))}
}

func decodeEscape(b []byte, final bool) (key, int) {
	if len(b) == 1 {
		if final {
			return key{name: "esc"}, 1
		}
		return key{}, 0
	}
	switch b[1] {
	case '[':
		return decodeSequence(b, final)
	case 'O':
		if len(b) == 2 && !final {
			return key{}, 0
		}
		if len(b) > 2 {
			return key{name: finals[b[2]]}, 3
		}
	case 'P', ']', '^', '_', 'X':
		return decodeString(b, final)
	case 0x1b:
		return key{name: "esc"}, 1
	}
	k, n := decode(b[1:], final)
	if n == 0 {
		return key{}, 0
	}
	return key{name: "alt+" + k.name}, n + 1
}

// decodeSequence reads a control sequence: ESC [, numbers, a letter.
func decodeSequence(b []byte, final bool) (key, int) {
	for i := 2; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c > 0x3f {
			return sequenceKey(string(b[2:i]), c), i + 1
		}
		if i > maxSequence {
			return key{}, i
		}
	}
	if !final {
		return key{}, 0
	}
	if len(b) == 2 {
		return key{name: "alt+["}, 2
	}
	return key{}, len(b)
}

// sequenceKey is the key of a control sequence with these parameters.
func sequenceKey(parameters string, end byte) key {
	if end == 'c' && strings.HasPrefix(parameters, "?") {
		return key{name: attributes, text: parameters[1:]}
	}
	first, rest, _ := strings.Cut(parameters, ";")
	number, _ := strconv.Atoi(first)
	held, _ := strconv.Atoi(rest)
	name := finals[end]
	switch end {
	case '~':
		name = tildes[number]
	case 'u': // the key's character, as a number
		switch number {
		case 13:
			name = "enter"
		case 9:
			name = "tab"
		case 27:
			name = "esc"
		case 127:
			name = "backspace"
		default:
			if number > ' ' && number < 0x7f {
				name = strings.ToLower(string(rune(number)))
			}
		}
	}
	if name == "" || held <= 1 {
		return key{name: name}
	}
	switch held -= 1; {
	case held&4 != 0:
		name = "ctrl+" + name
	case held&2 != 0:
		name = "alt+" + name
	case held&1 != 0 && name == "enter":
		name = "alt+enter"
	}
	return key{name: name}
}

// decodeString reads a string of the terminal, which ends with ESC \ or BEL.
func decodeString(b []byte, final bool) (key, int) {
	for i := 2; i < len(b) && i < maxSequence; i++ {
		switch {
		case b[i] == 0x07:
			return key{}, i + 1
		case b[i] == 0x1b && i+1 < len(b):
			if b[1] == '_' && bytes.HasPrefix(b[2:], []byte("G")) {
				return key{name: graphics, text: string(b[3:i])}, i + 2
			}
			return key{}, i + 2
		}
	}
	if !final && len(b) < maxSequence {
		return key{}, 0
	}
	if len(b) == 2 {
		return key{name: "alt+" + string(rune(b[1]))}, 2
	}
	return key{}, len(b)
}
