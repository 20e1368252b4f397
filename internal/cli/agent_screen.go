package cli

import (
	"fmt"
	"io"
	"time"
)

// style colours text on a terminal.
type style struct{ colour, screen bool }

func (s style) wrap(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string { return s.wrap("1", text) }
func (s style) dim(text string) string  { return s.wrap("2", text) }
func (s style) bad(text string) string  { return s.wrap("31", text) }
func (s style) good(text string) string { return s.wrap("32", text) }
func (s style) warn(text string) string { return s.wrap("33", text) }

// statusLine is the last line of a terminal. It shows the running action and
// its duration.
type statusLine struct {
	w     io.Writer
	width int
	shown bool
	off   bool // the user types on the line
}

func (s *statusLine) clear() {
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.w, "\r\x1b[K") // the next line reports the error
	}
}

func (s *statusLine) show(text string) {
	if s.off || text == "" {
		return
	}
	s.shown = true
	_, _ = io.WriteString(s.w, "\r\x1b[K"+cut(text, max(10, s.width-1)))
}

// draw draws the status line. Callers hold n.mu.
func (n *narrator) draw(now time.Time) {
	if n.status == nil || n.status.off {
		return
	}
	text := ""
	if len(n.order) > 0 {
		a := n.begun[n.order[0]]
		text = fmt.Sprintf("… %s (%s)", a.title, elapsed(now.Sub(a.since)))
		if more := len(n.order) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	n.status.clear()
	n.status.show(text)
}

// tick updates the status line.
func (n *narrator) tick(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.draw(now)
}

// pause hides the status line while the user types.
func (n *narrator) pause(off bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.status == nil {
		return
	}
	if off {
		n.status.clear()
	}
	n.status.off = off
}

// say prints a message of spool.
func (n *narrator) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.status != nil {
		n.status.clear()
	}
	_, _ = io.WriteString(n.progress, "spool: "+text+"\n") // the next event reports the error
}
