package render

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/visible"
)

// plain converts output to text: without escape sequences, in valid UTF-8, with
// overwritten lines in their last state.
func plain(s string) string {
	s = strings.ToValidUTF8(visible.Unstyled(s), "\uFFFD")
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = overwritten(line)
	}
	return strings.Join(lines, "\n")
}

// overwritten returns the visible text of a line with carriage returns: the
// last part, and the rest of longer parts before it.
func overwritten(line string) string {
	if strings.IndexByte(line, '\r') < 0 {
		return line
	}
	var shown []rune
	for part := range strings.SplitSeq(line, "\r") {
		over := []rune(part)
		if len(over) >= len(shown) {
			shown = over
			continue
		}
		copy(shown, over)
	}
	return string(shown)
}

// elide replaces the middle of a text, which may already have lost some of it.
func elide(first, last string, limit, lost int) string {
	headSize := limit / 3
	all := first + last
	if len(all) <= limit && lost == 0 {
		return all
	}
	head, tail := first, last
	if tail == "" {
		head, tail = first[:min(headSize, len(first))], first[min(headSize, len(first)):]
	}
	if len(head) > headSize {
		lost += len(head) - headSize
		head = head[:headSize]
	}
	if space := limit - headSize; len(tail) > space {
		lost += len(tail) - space
		tail = tail[len(tail)-space:]
	}
	for len(head) > 0 && !utf8.ValidString(head) {
		head = head[:len(head)-1]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", trimLineEnd(head), lost, tail)
}
