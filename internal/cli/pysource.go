package cli

import "strings"

// complete reports whether what was typed is a whole cell, as far as one can
// tell without running Python: no bracket or string is open, the line does not
// go on, and a block was ended by an empty line.
func completeSource(source string) bool {
	s := scanSource(source)
	if s.open || s.continued {
		return false
	}
	last := source[strings.LastIndexByte(source, '\n')+1:]
	if strings.TrimSpace(last) == "" {
		return true // an empty line ends whatever there is
	}
	first := strings.TrimLeft(source, "\n")
	if strings.HasPrefix(first, "%%") {
		return false // a cell magic takes all lines
	}
	if s.block || strings.HasPrefix(strings.TrimSpace(last), "@") {
		return false
	}
	return true
}

// scanned is what there is to know about source that may go on.
type scanned struct {
	open      bool // a bracket or a string of three quotes is
	continued bool // the last line ends with a backslash
	block     bool // some logical line ends with a colon
}

// scanSource looks at brackets, strings and comments, and at nothing else.
func scanSource(source string) scanned {
	var s scanned
	depth := 0
	code := byte(0) // the last that is no space of this logical line
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
			depth = max(depth-1, 0) // too many are Python's to complain about
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

// skipString returns the position after the string that begins at i. One with
// single quotes ends with its line, closed or not: that is an error, but no
// reason to wait for more.
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
