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
