package search

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/spool-run/spool"
)

// matcher finds the pattern of a query in a line.
type matcher struct {
	re *regexp.Regexp // nil if the pattern is literal alone
	// literal is text that every match contains; empty if there is none. Looking
	// for it costs a fraction of the regular expression.
	literal []byte
}

func newMatcher(q *Query) (*matcher, error) {
	if q.Literal && strings.ContainsRune(q.Pattern, '\n') {
		return nil, fmt.Errorf("search: %w: a line has no newline; search for one line", spool.ErrInvalid)
	}
	if q.Literal && !q.IgnoreCase {
		return &matcher{literal: []byte(q.Pattern)}, nil
	}
	expr := q.Pattern
	if q.Literal {
		expr = regexp.QuoteMeta(expr)
	}
	if q.IgnoreCase {
		expr = "(?i:" + expr + ")"
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("search: %w: %s", spool.ErrInvalid, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	m := &matcher{re: re}
	if tree, err := syntax.Parse(expr, syntax.Perl); err == nil {
		m.literal = []byte(required(tree.Simplify()))
	}
	return m, nil
}

// required returns the longest text that is known to be in every match.
func required(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if s := required(sub); len(s) > len(longest) {
				longest = s
			}
		}
		return longest
	}
	return ""
}

// find returns where the first match in a line is.
func (m *matcher) find(line []byte) (start, end int, ok bool) {
	if m.re == nil {
		i := bytes.Index(line, m.literal)
		return i, i + len(m.literal), i >= 0
	}
	if len(m.literal) > 0 && !bytes.Contains(line, m.literal) {
		return 0, 0, false
	}
	at := m.re.FindIndex(line)
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}

// absent reports whether no line in b can match, whatever b has between its lines.
func (m *matcher) absent(b []byte) bool {
	return len(m.literal) > 0 && !bytes.Contains(b, m.literal) && bytes.IndexByte(b, escape) < 0
}

// escape begins an escape sequence, which may lie within a match.
const escape = 0x1b

// candidates finds the lines of a text that may match.
type candidates struct {
	match           *matcher
	text            []byte
	literal, escape int // the next of each at or after a place that was asked for
}

// next returns the first place at or after from in a line that may match, or the
// length of the text.
func (c *candidates) next(from int) int {
	if len(c.match.literal) == 0 {
		return from
	}
	if c.literal < from {
		c.literal = after(c.text, from, bytes.Index(c.text[from:], c.match.literal))
	}
	if c.escape < from {
		c.escape = after(c.text, from, bytes.IndexByte(c.text[from:], escape))
	}
	return min(c.literal, c.escape)
}

// after returns the index in text of what was found at index i after from, or the
// length of the text if it was not found.
func after(text []byte, from, i int) int {
	if i < 0 {
		return len(text)
	}
	return from + i
}
