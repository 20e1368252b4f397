package peers

import "bytes"

// FirstLine is the number of the first line of output that is checked. All
// numbers have as many digits, so that a part of a line is not another line.
const FirstLine = 10_000_001

// Check finds what is wrong with the output that a reader received: lines that are
// numbers, from FirstLine on.
type Check struct {
	seen    []bool // by line
	partial []byte
	loss    Loss
}

// Loss is what is wrong with output.
type Loss struct {
	Lines    int // that were written
	Lost     int // lines that never came
	Repeated int // lines that came again
	Torn     int // lines that were never written
}

// NewCheck returns a check of a number of lines.
func NewCheck(lines int) *Check {
	return &Check{seen: make([]bool, lines), loss: Loss{Lines: lines}}
}

// Write takes what the reader received next.
func (c *Check) Write(p []byte) {
	for {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if !whole {
			c.partial = append(c.partial, p...)
			return
		}
		p = rest
		if len(c.partial) == 0 {
			c.line(line)
			continue
		}
		c.line(append(c.partial, line...))
		c.partial = c.partial[:0]
	}
}

// line takes a whole line. A carriage return at its end is the terminal's.
func (c *Check) line(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	i := number(line) - FirstLine
	switch {
	case i < 0 || i >= len(c.seen):
		c.loss.Torn++
	case c.seen[i]:
		c.loss.Repeated++
	default:
		c.seen[i] = true
	}
}

// number returns the number that a line is, or zero.
func number(line []byte) int {
	n := 0
	for _, digit := range line {
		if digit < '0' || digit > '9' || n > 10*FirstLine {
			return 0
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// Loss returns what is wrong so far: after the last Write, with the output as a
// whole.
func (c *Check) Loss() Loss {
	l := c.loss
	for _, seen := range c.seen {
		if !seen {
			l.Lost++
		}
	}
	if len(c.partial) > 0 {
		l.Torn++
	}
	return l
}
