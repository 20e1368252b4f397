package cli

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/lazyregexp"
)

// encodingLine matches the line with which Python source says its encoding. It
// is the first or the second line.
var encodingLine = lazyregexp.New(`^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)`)

// decodeSource decodes a Python source file. Python source is UTF-8 unless it
// says that it is something else.
func decodeSource(b []byte) (string, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if utf8.Valid(b) {
		return string(b), nil
	}
	lines := bytes.SplitN(b, []byte("\n"), 3)
	for _, line := range lines[:min(2, len(lines))] {
		m := encodingLine().FindSubmatch(line)
		if m == nil {
			continue
		}
		switch name := strings.ReplaceAll(strings.ToLower(string(m[1])), "_", "-"); name {
		case "latin-1", "iso-8859-1", "iso8859-1", "latin1", "l1":
			runes := make([]rune, len(b))
			for i, c := range b {
				runes[i] = rune(c)
			}
			return string(runes), nil
		default:
			return "", &hintedError{errors.New("the script is encoded as " + name + ", which spool does not read"), "save it as UTF-8"}
		}
	}
	return "", &hintedError{errors.New("the script is not UTF-8 and does not say its encoding"), "save it as UTF-8"}
}

// completeSource reports whether source is a whole cell, as far as this can be
// seen without Python: no bracket or string is open, the last line is not
// continued, and an empty line ends a block.
func completeSource(source string) bool {
	s := scanSource(source)
	if s.open || s.continued {
		return false
	}
	last := source[strings.LastIndexByte(source, '\n')+1:]
	if strings.TrimSpace(last) == "" {
		return true // an empty line ends any cell
	}
	first := strings.TrimLeft(source, "\n")
	if strings.HasPrefix(first, "%%") {
		return false // a cell magic includes all lines
	}
	if s.block || strings.HasPrefix(strings.TrimSpace(last), "@") {
		return false
	}
	return true
}

// scanned is the state at the end of incomplete source.
type scanned struct {
	open      bool // a bracket or a triple-quoted string is open
	continued bool // the last line ends with a backslash
	block     bool // some logical line ends with a colon
}

// scanSource scans brackets, strings and comments, and nothing else.
func scanSource(source string) scanned {
	var s scanned
	depth := 0
	code := byte(0) // the last character of this logical line that is not a space
	for i := 0; i < len(source); i++ {
		c := source[i]
		switch c {
		case '#':
			end := strings.IndexByte(source[i:], '\n')
			if end < 0 {
				end = len(source) - i
			}
			i += end - 1
			continue
		case '\'', '"':
			end, closed := skipString(source, i)
			if !closed {
				s.open = true
				return s
			}
			i = end - 1
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0) // Python reports a bracket too many
		case '\\':
			if i+1 < len(source) && source[i+1] == '\n' {
				i++
				continue
			}
			s.continued = i+1 == len(source)
		case '\n':
			if depth == 0 {
				s.block = s.block || code == ':'
				code = 0
			}
			continue
		case ' ', '\t', '\r':
			continue
		}
		code = c
	}
	s.block = s.block || depth == 0 && code == ':'
	s.open = depth > 0
	return s
}

// skipString returns the position after the string that begins at i. A
// single-quoted string ends with its line even if it is not closed: Python
// reports that error.
func skipString(source string, i int) (end int, closed bool) {
	quote := source[i : i+1]
	long := strings.HasPrefix(source[i:], strings.Repeat(quote, 3))
	if long {
		quote = strings.Repeat(quote, 3)
	}
	for j := i + len(quote); j < len(source); j++ {
		switch {
		case source[j] == '\\':
			j++
		case strings.HasPrefix(source[j:], quote):
			return j + len(quote), true
		case source[j] == '\n' && !long:
			return j, true
		}
	}
	return len(source), !long
}
