package narrate

import "strings"

func (n *Narrator) style(code, text string) string {
	if !n.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (n *Narrator) bold(text string) string { return n.style("1", text) }
func (n *Narrator) bad(text string) string  { return n.style("31", text) }
func (n *Narrator) good(text string) string { return n.style("32", text) }
func (n *Narrator) warn(text string) string { return n.style("33", text) }
func (n *Narrator) mark(text string) string { return n.style("36", text) }

// dim styles every line apart, so that none depends on another.
func (n *Narrator) dim(text string) string { return n.dimLines(text) }

func (n *Narrator) dimLines(text string) string {
	if !n.Colour {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = n.style("2", l)
	}
	return strings.Join(lines, "\n")
}
