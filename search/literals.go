package search

import (
	"regexp/syntax"
	"unicode/utf8"
)

// literal is text that a match holds.
type literal struct {
	text string
	fold bool // its case is ignored
}

// clause is a set of literals of which every match holds at least one.
type clause []literal

// maxAlternatives bounds a clause: looking for more literals takes longer than they save.
const maxAlternatives = 8

// clausesOf returns clauses that hold for every match of an expression.
func clausesOf(re *syntax.Regexp) []clause {
	switch re.Op {
	case syntax.OpLiteral:
		return literalClauses(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCapture, syntax.OpPlus:
		return clausesOf(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return clausesOf(re.Sub[0])
		}
	case syntax.OpConcat:
		var all []clause
		for _, sub := range re.Sub {
			all = append(all, clausesOf(sub)...)
		}
		return all
	case syntax.OpAlternate:
		// The best clause of each alternative.
		var all clause
		for _, sub := range re.Sub {
			c := best(clausesOf(sub))
			if c == nil || len(all)+len(c) > maxAlternatives {
				return nil
			}
			all = append(all, c...)
		}
		return []clause{all}
	}
	return nil
}

// literalClauses returns the clauses of consecutive runes. Where case is ignored, a
// letter that is not ASCII may be other bytes in a match, as may a rune that stands for
// invalid bytes.
func literalClauses(runes []rune, fold bool) []clause {
	var all []clause
	var text []byte
	end := func() {
		if len(text) > 0 {
			all = append(all, clause{{string(text), fold}})
			text = text[:0]
		}
	}
	for _, r := range runes {
		if r == utf8.RuneError || fold && r >= utf8.RuneSelf {
			end()
			continue
		}
		text = utf8.AppendRune(text, r)
	}
	end()
	return all
}

// best returns the clause that is found least often: that with the longest literals.
func best(all []clause) clause {
	var found clause
	for _, c := range all {
		if found == nil || c.shortest() > found.shortest() {
			found = c
		}
	}
	return found
}

// shortest returns the length of its shortest literal.
func (c clause) shortest() int {
	n := len(c[0].text)
	for _, l := range c[1:] {
		n = min(n, len(l.text))
	}
	return n
}
