package spool

import (
	"time"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends a text as a string of JSON, as encoding/json does without the
// escapes for HTML. Nearly all that runs write goes through it.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	begin := 0 // of what is not appended yet
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[begin:i]...), c)
			i++
			begin = i
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, s[begin:i]...), `\ufffd`...)
			begin = i + size
		case r == '\u2028' || r == '\u2029': // line ends in JavaScript
			dst = append(append(dst, s[begin:i]...), '\\', 'u', '2', '0', '2', hexDigits[r&0xf])
			begin = i + size
		}
		i += size
	}
	dst = append(dst, s[begin:]...)
	return append(dst, '"')
}

// appendEscape appends the escape of a byte.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// appendTime appends a time in UTC. It always has nine digits after the point, so that
// lines sort as text.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000000000Z")
	}
	hour, minute, second := t.Clock()
	dst = appendDigits(dst, year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	dst = appendDigits(append(dst, '.'), t.Nanosecond(), 9)
	return append(dst, 'Z')
}

// appendDigits appends a number with leading zeros.
func appendDigits(dst []byte, n, digits int) []byte {
	const zeros = "000000000"
	dst = append(dst, zeros[:digits]...)
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}
