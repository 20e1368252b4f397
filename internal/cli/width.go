package cli

import (
	"strings"

	"github.com/spool-run/spool/internal/visible"
)

// runeWidth returns how many columns of a terminal a character takes.
func runeWidth(r rune) int { return visible.RuneWidth(r) }

// textWidth returns how many columns of a terminal a text takes.
func textWidth(s string) int { return visible.Width(s) }

// cut shortens text to a number of columns.
func cut(s string, n int) string { return visible.Cut(s, n) }

// pad fills text up with spaces to a number of columns.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-textWidth(s)))
}

// wrapWords joins words with a separator and spaces, for a help text: in lines of at
// most 78 characters, indented but for the first.
func wrapWords(words []string, separator string) string {
	var b strings.Builder
	used := 0
	for i, w := range words {
		if i < len(words)-1 {
			w += separator
		}
		switch {
		case i == 0:
			used = 2
		case used+1+len(w) > 78:
			b.WriteString("\n  ")
			used = 2
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(w)
		used += len(w)
	}
	return b.String()
}
