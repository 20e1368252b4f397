package cli

import (
	"io"
	"os"
)

// maxStatus is the width of the status line in columns. A terminal that becomes
// narrower than it breaks the line into several, of which only the last can be
// removed.
const maxStatus = 72

// spinner are the characters that turn at the beginning of the status line while
// the agent is active.
var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// statusLine is the last line of a terminal: what the agent does, and since when.
// It only ever changes the line that it is on. A nil one shows nothing.
type statusLine struct {
	terminal *os.File
	colour   bool
	shown    bool
	paused   int // the terminal is used for something else
	frame    int
}

// spin turns the spinner.
func (s *statusLine) spin() {
	if s != nil {
		s.frame = (s.frame + 1) % len(spinner)
	}
}

// clear removes the line.
func (s *statusLine) clear() {
	if s != nil && s.shown {
		s.shown = false
		_, _ = io.WriteString(s.terminal, "\r\x1b[K") // the next line reports the error
	}
}

// show replaces the line.
func (s *statusLine) show(text string, stalled bool) {
	if s == nil || s.paused > 0 {
		return
	}
	if text == "" {
		s.clear()
		return
	}
	mark, code := string(spinner[s.frame]), "2"
	if stalled {
		mark, code = "!", "33"
	}
	width := maxStatus
	if size, ok := terminalSize(s.terminal); ok { // it may have changed
		width = min(width, int(size.Cols)-1)
	}
	text = cut(mark+" "+text, width)
	if s.colour {
		text = "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	s.shown = true
	_, _ = io.WriteString(s.terminal, "\r"+text+"\x1b[K")
}

// pause hides the line as long as one of the callers wants that.
func (s *statusLine) pause(off bool) {
	switch {
	case s == nil:
	case off:
		s.clear()
		s.paused++
	default:
		s.paused--
	}
}
