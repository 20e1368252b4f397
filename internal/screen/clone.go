package screen

import (
	"slices"

	"github.com/spool-run/spool"
)

// Clone returns a screen of its own that shows the same and goes on the same way.
func (s *Screen) Clone() *Screen {
	c := *s
	c.parser = s.parser.clone()
	c.modes.parser = s.modes.parser.clone()
	for i := range c.modes.keyboard {
		c.modes.keyboard[i] = slices.Clone(s.modes.keyboard[i])
	}
	for i := range c.pages {
		c.pages[i].lines = c.blankLines(len(s.pages[i].lines))
		for k, line := range s.pages[i].lines {
			copy(c.pages[i].lines[k], line)
		}
	}
	c.page = &c.pages[0]
	if s.Alternate() {
		c.page = &c.pages[1]
	}
	c.tabs = slices.Clone(s.tabs)
	c.back.lines = slices.Clone(s.back.lines)
	return &c
}

func (p parser) clone() parser {
	p.params, p.pending = slices.Clone(p.params), slices.Clone(p.pending)
	return p
}

// Clone returns a view of its own at the same event.
func (v *View) Clone() *View {
	c := *v
	c.Screen = v.Screen.Clone()
	return &c
}

// Begin returns the screen of a run before its first event.
func Begin(info *spool.Info) *View {
	v := newView(info)
	v.resize(firstSize(info))
	v.Last, v.Exact = 0, true
	return v
}
