package cli

import (
	"slices"
	"strings"
)

// column describes one column of a table.
type column struct {
	title string
	right bool // aligned to the right, for numbers
	least int  // columns of the terminal that it keeps if the table is too wide; zero never cuts it
}

// table is text in columns, fitted to the width of a terminal.
type table struct {
	columns []column
	rows    [][]string
	colour  func(row, column int) string // the sequence that begins a colour; nil or "" for none
}

// cellGap is the number of spaces between two columns.
const cellGap = 2

// lines formats the table to at most the given number of columns of a terminal.
// Zero means no limit. The cells are single lines.
func (t *table) lines(width int) []string {
	widths := make([]int, len(t.columns))
	for c, col := range t.columns {
		widths[c] = textWidth(col.title)
		for _, row := range t.rows {
			widths[c] = max(widths[c], textWidth(row[c]))
		}
	}
	if width > 0 {
		t.shrink(widths, width)
	}
	titles := make([]string, len(t.columns))
	for c, col := range t.columns {
		titles[c] = col.title
	}
	out := []string{t.line(titles, widths, -1)}
	for i, row := range t.rows {
		out = append(out, t.line(row, widths, i))
	}
	return out
}

// shrink makes columns that may be cut narrower until the table fits: first the
// one that is furthest above its least width.
func (t *table) shrink(widths []int, width int) {
	over := -width - cellGap
	for _, w := range widths {
		over += w + cellGap
	}
	for over > 0 {
		widest, room := -1, 0
		for c, col := range t.columns {
			if col.least > 0 && widths[c]-col.least > room {
				widest, room = c, widths[c]-col.least
			}
		}
		if widest < 0 {
			return
		}
		step := min(over, max(1, room/2))
		widths[widest] -= step
		over -= step
	}
}

func (t *table) line(cells []string, widths []int, row int) string {
	var line strings.Builder
	for c, cell := range cells {
		cell = cut(cell, widths[c])
		space := strings.Repeat(" ", max(0, widths[c]-textWidth(cell)))
		if t.colour != nil && row >= 0 {
			if begin := t.colour(row, c); begin != "" {
				cell = begin + cell + "\x1b[0m"
			}
		}
		if t.columns[c].right {
			line.WriteString(space + cell)
		} else {
			line.WriteString(cell + space)
		}
		if c < len(cells)-1 {
			line.WriteString(strings.Repeat(" ", cellGap))
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// text returns the lines of the table as one text.
func (t *table) text(width int) string {
	return strings.Join(t.lines(width), "\n") + "\n"
}

// nearest returns the word that a mistyped one most likely means, or "".
func nearest(word string, words []string) string {
	best, least := "", len(word)/3+2
	for _, w := range slices.Sorted(slices.Values(words)) {
		if d := editDistance(word, w); d < least || len(word) >= 2 && strings.HasPrefix(w, word) && best == "" {
			best, least = w, min(d, least)
		}
	}
	return best
}

// editDistance is the number of letters to change, insert, remove or swap with
// their neighbour to make b of a.
func editDistance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
