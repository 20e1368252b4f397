package screen

import "slices"

// back is the lines that went off the top of the main screen.
type back struct {
	most   int  // how many are kept; the others are forgotten
	styled bool // with their colours
	lines  []string
}

// KeepBack has the screen keep that many of the lines that go off its top from now on, with
// the sequences of their colours or without.
func (s *Screen) KeepBack(lines int, styled bool) { s.back = back{most: lines, styled: styled} }

// Back returns those lines, the last of them last.
func (s *Screen) Back() []string {
	return slices.Clone(s.back.lines[max(0, len(s.back.lines)-s.back.most):])
}

// add adds lines. It forgets the first of many at once, so that each is moved at most once.
func (b *back) add(lines [][]cell) {
	if b.most == 0 {
		return
	}
	for _, line := range lines {
		b.lines = append(b.lines, textOf(line, b.styled))
	}
	if len(b.lines) >= 2*b.most {
		b.lines = append(b.lines[:0], b.lines[len(b.lines)-b.most:]...)
	}
}

func (b *back) clear() { b.lines = nil }

// textOf is the text of a line, without blanks at its end.
func textOf(line []cell, styled bool) string {
	end := len(line)
	for end > 0 && (line[end-1] == (cell{}) || !styled && line[end-1].char == 0) {
		end--
	}
	var b []byte
	pen := style{}
	for i := range line[:end] {
		c := &line[i]
		if c.width == tail {
			continue
		}
		if styled && c.style != pen {
			pen = c.style
			b = pen.appendTo(b)
		}
		b = c.append(b)
	}
	if pen != (style{}) {
		b = append(b, "\x1b[m"...)
	}
	return string(b)
}

// scrollOff moves the part of the screen that scrolls up. What leaves the main screen at its
// top is kept if somebody wants it.
func (s *Screen) scrollOff(n int) {
	if s.top == 0 && !s.Alternate() {
		s.back.add(s.page.lines[:min(n, s.bottom)])
	}
	s.scroll(s.top, s.bottom, n)
}
