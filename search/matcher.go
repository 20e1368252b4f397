package search

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sieve"
)

// matcher finds the pattern of a query in a line.
type matcher struct {
	re *regexp.Regexp // nil if the pattern is literal alone
	// needles are texts of which every match contains at least one; none if no
	// such texts are known. Looking for them costs a fraction of the regular
	// expression.
	needles []needle
	// variants are letters beyond ASCII that match a letter of a needle if case
	// is ignored. A line with one may match without a needle.
	variants [][]byte
	sieve    *sieve.Query // nil if a sieve cannot tell
}

func newMatcher(q *Query) (*matcher, error) {
	if q.Literal && strings.ContainsRune(q.Pattern, '\n') {
		return nil, fmt.Errorf("search: %w: a line has no newline; search for one line", spool.ErrInvalid)
	}
	if q.Literal && !q.IgnoreCase {
		m := &matcher{}
		m.require([]clause{{{q.Pattern, false}}})
		return m, nil
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
		m.require(clausesOf(tree.Simplify()))
	}
	return m, nil
}

// require sets what every match contains.
func (m *matcher) require(all []clause) {
	c := best(all)
	for _, l := range c {
		n := newNeedle(l.text, l.fold)
		m.needles = append(m.needles, n)
		if l.fold && bytes.IndexByte(n.text, 'k') >= 0 {
			m.variants = append(m.variants, []byte("\u212a")) // the Kelvin sign
		}
		if l.fold && bytes.IndexByte(n.text, 's') >= 0 {
			m.variants = append(m.variants, []byte("\u017f")) // the long s
		}
	}
	texts := make([][]string, len(all))
	for i, c := range all {
		for _, l := range c {
			texts[i] = append(texts[i], l.text)
		}
	}
	m.sieve = sieve.NewQuery(texts)
}

// find returns where the first match in a line is.
func (m *matcher) find(line []byte) (start, end int, ok bool) {
	if m.re == nil {
		n := &m.needles[0]
		i := n.index(line)
		return i, i + len(n.text), i >= 0
	}
	if len(m.needles) > 0 && m.next(line) == len(line) {
		return 0, 0, false
	}
	at := m.re.FindIndex(line)
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}

// next returns the first place in a text where something is that a match contains, or
// the length of the text. There are needles.
func (m *matcher) next(text []byte) int {
	first := len(text)
	for i := range m.needles {
		if k := m.needles[i].index(text[:first]); k >= 0 {
			first = k
		}
	}
	for _, v := range m.variants {
		if k := bytes.Index(text[:first], v); k >= 0 {
			first = k
		}
	}
	return first
}

// absent reports whether no line of a text can match.
func (m *matcher) absent(text []byte) bool {
	return len(m.needles) > 0 && m.next(text) == len(text) && bytes.IndexByte(text, escape) < 0
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
	if len(c.match.needles) == 0 {
		return from
	}
	if c.literal < from {
		c.literal = from + c.match.next(c.text[from:])
	}
	if c.escape < from {
		c.escape = after(c.text, from, bytes.IndexByte(c.text[from:], escape))
	}
	return min(c.literal, c.escape)
}
