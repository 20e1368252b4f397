package screen

import "unicode/utf8"

// parser splits the output of a terminal into characters, controls and
// sequences. A sequence may be split between writes.
type parser struct {
	state        parserState
	prefix       byte // of a control sequence: one of <=>?
	intermediate byte // the last byte of 0x20 to 0x2f before the final byte
	params       []param
	introducer   byte   // of a string: one of ]PX^_k
	pending      []byte // the incomplete sequence or character, up to maxPending
	skipText     bool   // the handler takes no characters
}

type parserState uint8

const (
	ground       parserState = iota
	character                // in a character of several bytes
	escape                   // after ESC
	control                  // in a control sequence: ESC [
	text                     // in a string: ESC ], P, X, ^, _ or k
	textEscape               // after ESC in a string
	maxPending   = 4096      // bytes of an incomplete sequence that are kept
	maxParams    = 32
	maxParameter = 65535
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f
)

// param is a parameter of a control sequence.
type param struct {
	value int  // -1 if it was left out
	sub   bool // joined to the parameter before with a colon
}

// handler acts on what a parser finds.
type handler interface {
	print(r rune)
	control(c byte)
	escape(intermediate, final byte)
	sequence(prefix, intermediate, final byte, params []param)
}

func (p *parser) feed(h handler, b []byte) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if p.state == ground && c >= ' ' && c < del {
			if !p.skipText {
				h.print(rune(c))
			}
			continue
		}
		p.next(h, c)
	}
}

func (p *parser) next(h handler, c byte) {
	switch p.state {
	case ground:
		switch {
		case c == esc:
			p.begin(c)
		case c < ' ':
			h.control(c)
		case c >= utf8.RuneSelf && !p.skipText:
			p.state, p.pending = character, append(p.pending[:0], c)
			p.finishCharacter(h)
		}
	case character:
		if utf8.RuneStart(c) { // the character before is incomplete
			p.reset()
			h.print(utf8.RuneError)
			p.feed(h, []byte{c})
			return
		}
		p.pending = append(p.pending, c)
		p.finishCharacter(h)
	case text, textEscape:
		p.inText(h, c)
	default:
		switch {
		case c == esc:
			p.begin(c)
		case c == can || c == sub:
			p.reset()
		case c < ' ':
			h.control(c)
		case c >= del:
			if c != del {
				p.reset()
			}
		default:
			p.keep(c)
			if p.state == escape {
				p.inEscape(h, c)
			} else {
				p.inControl(h, c)
			}
		}
	}
}

func (p *parser) begin(c byte) {
	p.state, p.prefix, p.intermediate = escape, 0, 0
	p.pending = append(p.pending[:0], c)
}

func (p *parser) reset() { p.state, p.pending = ground, p.pending[:0] }

func (p *parser) keep(c byte) {
	if len(p.pending) < maxPending {
		p.pending = append(p.pending, c)
	}
}

func (p *parser) finishCharacter(h handler) {
	if !utf8.FullRune(p.pending) {
		return
	}
	r, n := utf8.DecodeRune(p.pending)
	rest := len(p.pending) - n
	p.reset()
	h.print(r)
	for range rest { // of an invalid character
		h.print(utf8.RuneError)
	}
}

func (p *parser) inEscape(h handler, c byte) {
	switch {
	case c < '0':
		p.intermediate = c
	case p.intermediate != 0:
		p.reset()
		h.escape(p.intermediate, c)
	case c == '[':
		p.state, p.params = control, p.params[:0]
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_' || c == 'k':
		p.state, p.introducer = text, c
	default:
		p.reset()
		h.escape(0, c)
	}
}

func (p *parser) inControl(h handler, c byte) {
	switch {
	case c >= '0' && c <= '9':
		if len(p.params) == 0 {
			p.addParam(false)
		}
		last := &p.params[len(p.params)-1]
		last.value = min(max(last.value, 0)*10+int(c-'0'), maxParameter)
	case c == ';' || c == ':':
		if len(p.params) == 0 {
			p.addParam(false)
		}
		p.addParam(c == ':')
	case c >= '<' && c <= '?':
		p.prefix = c
	case c < '0':
		p.intermediate = c
	default:
		p.reset()
		h.sequence(p.prefix, p.intermediate, c, p.params)
	}
}

func (p *parser) addParam(sub bool) {
	if len(p.params) < maxParams {
		p.params = append(p.params, param{-1, sub})
	} else {
		p.params[maxParams-1] = param{-1, sub}
	}
}

// inText passes over a string for the terminal.
func (p *parser) inText(h handler, c byte) {
	switch {
	case c == can || c == sub, c == bel && p.introducer == ']':
		p.reset()
	case p.state == textEscape && c == '\\':
		p.reset()
	case p.state == textEscape: // a sequence that ends the string
		p.begin(esc)
		p.next(h, c)
	case c == esc:
		p.state = textEscape
		p.keep(c)
	default:
		p.keep(c)
	}
}

// resume returns the bytes after which another terminal takes the rest of the
// incomplete sequence as this parser does.
func (p *parser) resume() []byte {
	if len(p.pending) < maxPending {
		return p.pending
	}
	switch { // a long string: another one that terminals ignore
	case p.state == textEscape:
		return []byte("\x1bX\x1b")
	case p.introducer == ']':
		return []byte("\x1b]9999;")
	}
	return []byte("\x1bX")
}

// get returns a parameter, or a default if it is left out or zero.
func get(params []param, i, otherwise int) int {
	if i < len(params) && params[i].value > 0 {
		return params[i].value
	}
	return otherwise
}
