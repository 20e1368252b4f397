package screen

import "strconv"

// style is how a character is drawn.
type style struct {
	foreground, background, line color // line is the colour of the underline
	attributes                   uint16
	underline                    uint8 // 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
}

// color is a colour: zero is the default one; palette colours have bit 24 set,
// others bit 25 with red, green and blue below.
type color uint32

const (
	palette color = 1 << 24
	direct  color = 1 << 25
)

// The attributes, with the numbers that set them and reset them.
var attributes = [...]struct{ set, reset int }{
	{1, 22}, {2, 22}, {3, 23}, {5, 25}, {6, 25}, {7, 27}, {8, 28}, {9, 29}, {53, 55},
}

// apply changes the style by the parameters of a control sequence.
func (s *style) apply(params []param) {
	if len(params) == 0 {
		*s = style{}
		return
	}
	for i := 0; i < len(params); i++ {
		n := max(params[i].value, 0)
		switch {
		case n == 0:
			*s = style{}
		case n == 4 && i+1 < len(params) && params[i+1].sub:
			s.underline = uint8(min(max(params[i+1].value, 0), 5))
		case n == 4:
			s.underline = 1
		case n == 21:
			s.underline = 2
		case n == 24:
			s.underline = 0
		case n >= 30 && n <= 37:
			s.foreground = palette | color(n-30)
		case n >= 40 && n <= 47:
			s.background = palette | color(n-40)
		case n >= 90 && n <= 97:
			s.foreground = palette | color(n-90+8)
		case n >= 100 && n <= 107:
			s.background = palette | color(n-100+8)
		case n == 38 || n == 48 || n == 58:
			c, used := readColor(params[i+1:])
			i += used
			switch n {
			case 38:
				s.foreground = c
			case 48:
				s.background = c
			default:
				s.line = c
			}
		case n == 39:
			s.foreground = 0
		case n == 49:
			s.background = 0
		case n == 59:
			s.line = 0
		default:
			for k, a := range attributes {
				switch n {
				case a.set:
					s.attributes |= 1 << k
				case a.reset:
					s.attributes &^= 1 << k
				}
			}
		}
		for i+1 < len(params) && params[i+1].sub { // of the parameter above
			i++
		}
	}
}

// readColor reads the parameters after 38, 48 or 58, and returns how many belong
// to the colour.
func readColor(params []param) (color, int) {
	values := make([]int, 0, 6)
	n := 0
	if len(params) > 0 && params[0].sub { // all are joined with colons
		for n < len(params) && params[n].sub {
			values = append(values, params[n].value)
			n++
		}
		if len(values) >= 5 && values[0] == 2 { // the second is a colour space
			values = append(values[:1], values[2:]...)
		}
	} else {
		for n < len(params) && n < 4 {
			values = append(values, params[n].value)
			n++
		}
	}
	switch {
	case len(values) >= 2 && values[0] == 5:
		if n == 4 || n == 3 && !params[0].sub {
			n = 2
		}
		return palette | color(min(max(values[1], 0), 255)), n
	case len(values) >= 4 && values[0] == 2:
		c := direct
		for _, v := range values[1:4] {
			c = c&^0xffffff | (c<<8|color(min(max(v, 0), 255)))&0xffffff
		}
		return c, n
	}
	return 0, n
}

// appendTo appends the sequence that changes to this style from any other.
func (s style) appendTo(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	for k, a := range attributes {
		if s.attributes&(1<<k) != 0 {
			b = appendNumber(b, a.set)
		}
	}
	switch s.underline {
	case 0:
	case 1:
		b = appendNumber(b, 4)
	default:
		b = append(b, ";4:"...)
		b = strconv.AppendUint(b, uint64(s.underline), 10)
	}
	b = s.foreground.appendTo(b, 30)
	b = s.background.appendTo(b, 40)
	if s.line != 0 {
		b = s.line.appendTo(b, 50)
	}
	return append(b, 'm')
}

func appendNumber(b []byte, n int) []byte { return strconv.AppendInt(append(b, ';'), int64(n), 10) }

func (c color) appendTo(b []byte, base int) []byte {
	switch n := int(c & 0xffffff); {
	case c == 0:
	case c&direct != 0:
		b = appendNumber(appendNumber(b, base+8), 2)
		for shift := 16; shift >= 0; shift -= 8 {
			b = appendNumber(b, n>>shift&0xff)
		}
	case base == 50 || n >= 16:
		b = appendNumber(appendNumber(appendNumber(b, base+8), 5), n)
	case n >= 8:
		b = appendNumber(b, base+60+n-8)
	default:
		b = appendNumber(b, base+n)
	}
	return b
}
