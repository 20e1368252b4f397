// Package visible prepares text of others for a terminal: nothing in it moves the
// cursor or hides, and its width is known.
package visible

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spool-run/spool/internal/lazyregexp"
)

// Hidden reports whether a character is not seen, or changes the order in
// which others are seen: zero-width and bidirectional controls and fillers.
func Hidden(r rune) bool {
	switch r {
	case '\u2028', '\u2029', '\u115f', '\u1160', '\u3164', '\uffa0':
		return true
	}
	return r >= 0xa0 && unicode.Is(unicode.Cf, r)
}

// Line returns text as one line: controls and hidden characters are escaped.
func Line(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case Hidden(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case Hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapes matches terminal escape sequences.
var escapes = lazyregexp.New("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[PX^_][^\x1b]*\x1b\\\\|[ -/]*[0-~])")

// Unstyled returns text without terminal escape sequences, such as those of
// colours.
func Unstyled(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	s = escapes().ReplaceAllString(s, "")
	return strings.ReplaceAll(s, "\x1b", "") // of a sequence that is cut
}

// Text returns text of several lines without controls and hidden characters, and
// without a newline at its end.
func Text(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = Line(strings.ReplaceAll(strings.TrimSuffix(l, "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// Short returns text as one line of at most a number of columns.
func Short(s string, columns int) string {
	return Cut(strings.Join(strings.Fields(Line(s)), " "), columns)
}
