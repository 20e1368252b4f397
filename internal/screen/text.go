package screen

import "strings"

// Text returns what the screen shows, without colours: a line for each row, without
// blanks at its end, and without empty lines at the end.
func (s *Screen) Text() string {
	var b strings.Builder
	for _, line := range s.page.lines {
		blanks := 0
		for i := range line {
			c := &line[i]
			switch {
			case c.width == tail:
			case c.char == 0 || c.char == ' ':
				blanks++
			default:
				b.WriteString(strings.Repeat(" ", blanks))
				blanks = 0
				b.WriteRune(c.char)
				b.WriteString(c.marks)
			}
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}
