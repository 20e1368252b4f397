// Package prompt edits the text of a cell on a terminal: several lines with
// indentation and colours, with completion, a history, and search in it.
//
// An [Editor] has no goroutine and reads nothing by itself. Its owner feeds it the
// bytes of the keyboard and has it write what belongs above the text, both from
// one goroutine, so that the output of a running program and the text that the
// user types never mix.
package prompt

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// oneLevel is the number of spaces of one level of indentation.
const oneLevel = 4

// maxUndo limits the changes that can be undone.
const maxUndo = 1000

// Config is what an [Editor] needs.
type Config struct {
	Screen io.Writer                  // the terminal, in raw mode while the user types
	Size   func() (columns, rows int) // of the terminal
	Width  func(rune) int             // columns of a character
	Colour bool

	History *History
	// Whole reports whether Enter on the last line runs the text.
	Whole func(text string) bool
	// Indent is what the line after an unfinished text begins with.
	Indent func(text string) string
	// Complete returns what may replace the text from start to the cursor,
	// both counted in characters, or a note for the user.
	Complete func(text string, cursor int) (start int, matches []string, note string)
	// Reply gets the replies of the terminal to the questions of [Questions].
	Reply func(kind, text string)
}

// Questions ask a terminal whether it shows kitty graphics, and for its attributes.
// Each terminal answers the second question.
const Questions = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"

// The kinds of a reply of the terminal.
const (
	Attributes = attributes
	Graphics   = graphics
)

// Mode is how a text is edited.
type Mode struct {
	First, More string // the prompts of the first line and of the others
	Line        bool   // the text is one line, which answers a question
	Secret      bool   // the text is not shown
}

// State is what became of a text.
type State int

// The states of a text.
const (
	Editing     State = iota
	Accepted          // the user is done
	Interrupted       // the user pressed Ctrl-C
	Ended             // the user pressed Ctrl-D
	Suspended         // the user pressed Ctrl-Z; the text stays
)

// Editor edits one text after another.
type Editor struct {
	c       Config
	in      []byte // keys that wait
	scanned int    // bytes of a paste that have been searched for its end
	screen  screen
	top     int // first row that is shown, if not all fit

	mode Mode
	text []rune
	at   int // the cursor
	goal int // column to keep while the cursor moves up and down; -1 without

	undo   []edit
	typing bool // the last change was one character
	killed []rune

	draft  string // the text before the user went to the history
	past   int    // the cell of the history that is shown; 0 is the draft
	search *search
	list   []string // completions below the text
	note   string   // message below the text
}

// edit is a text that undo brings back.
type edit struct {
	text []rune
	at   int
}

// New returns an editor.
func New(c Config) *Editor { return &Editor{c: c, goal: -1} }

// Start begins a new text and shows the prompt.
func (e *Editor) Start(m Mode) {
	e.mode, e.text, e.at, e.goal, e.top = m, nil, 0, -1, 0
	e.undo, e.typing, e.past, e.search = nil, false, 0, nil
	e.list, e.note = nil, ""
	e.Resume()
}

// Resume shows the text again after [Suspended].
func (e *Editor) Resume() {
	e.screen = screen{}
	e.write("\x1b[?2004h")
	e.paint()
}

// Stop gives up the text. It does nothing if the text is done.
func (e *Editor) Stop() {
	if e.screen.painted {
		e.leave()
	}
}

// Feed takes bytes of the keyboard. [Editor.Next] handles them.
func (e *Editor) Feed(b []byte) { e.in = append(e.in, b...) }

// Partial reports whether bytes wait that may be the begin of a key. If no more
// come soon, [Editor.Flush] takes them as they are.
func (e *Editor) Partial() bool { return len(e.in) > 0 && !e.pasting() }

// Flush handles bytes that are no complete key.
func (e *Editor) Flush() (string, State) { return e.handle(true) }

// Next handles keys until the text is done or no more keys wait.
func (e *Editor) Next() (string, State) { return e.handle(false) }

func (e *Editor) handle(final bool) (string, State) {
	changed := false
	for len(e.in) > 0 {
		k, ok := e.key(final)
		if !ok {
			break
		}
		if k.name == attributes || k.name == graphics {
			if e.c.Reply != nil {
				e.c.Reply(k.name, k.text)
			}
			continue
		}
		changed = true
		if state := e.press(k); state != Editing {
			return e.finish(state)
		}
	}
	if changed {
		e.paint()
	}
	return "", Editing
}

// Replies handles the replies of the terminal among the bytes that wait. The keys
// stay.
func (e *Editor) Replies() {
	var rest []byte
	for len(e.in) > 0 {
		k, n := decode(e.in, false)
		if n == 0 {
			break
		}
		if k.name == attributes || k.name == graphics {
			e.c.Reply(k.name, k.text)
		} else {
			rest = append(rest, e.in[:n]...)
		}
		e.in = e.in[n:]
	}
	e.in = append(rest, e.in...)
}

// key takes a key from the bytes that wait.
func (e *Editor) key(final bool) (key, bool) {
	if e.pasting() {
		end := bytes.Index(e.in[e.scanned:], []byte(pasteEnd))
		if end < 0 {
			e.scanned = max(len(pasteBegin), len(e.in)-len(pasteEnd))
			return key{}, false
		}
		end += e.scanned
		text := string(e.in[len(pasteBegin):end])
		e.in, e.scanned = e.in[end+len(pasteEnd):], 0
		return key{name: pasted, text: strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")}, true
	}
	k, n := decode(e.in, final)
	e.in = e.in[n:]
	return k, n > 0
}

func (e *Editor) pasting() bool { return bytes.HasPrefix(e.in, []byte(pasteBegin)) }

// finish ends the text.
func (e *Editor) finish(state State) (string, State) {
	e.list, e.note, e.search = nil, "", nil
	text := string(e.text)
	e.leave()
	if state == Accepted && !e.mode.Line {
		e.c.History.Add(text)
	}
	return text, state
}

// Above writes output above the text.
func (e *Editor) Above(b []byte) {
	if len(b) == 0 {
		return
	}
	e.erase()
	e.write(strings.ReplaceAll(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n", "\r\n"))
	if b[len(b)-1] != '\n' {
		e.write("\r\n")
	}
	e.paint()
}

// Resize shows the text again after the size of the terminal has changed. The
// terminal may have wrapped the rows that were too long.
func (e *Editor) Resize() {
	columns, _ := e.c.Size()
	columns = max(columns, 1)
	row := e.screen.column / columns
	for _, w := range e.screen.widths[:min(e.screen.row, len(e.screen.widths))] {
		row += max(1, (w+columns-1)/columns)
	}
	e.screen.row = row
	e.paint()
}

// press handles one key.
func (e *Editor) press(k key) State {
	e.list, e.note = nil, ""
	if e.search != nil && e.searchKey(k) {
		return Editing
	}
	goal := e.goal
	e.goal = -1
	switch k.name {
	case "enter", "ctrl+j":
		return e.enter()
	case "alt+enter", "ctrl+enter":
		return Accepted
	case "ctrl+c":
		return Interrupted
	case "ctrl+z":
		if !e.mode.Line {
			return Suspended
		}
	case "ctrl+d":
		if len(e.text) == 0 {
			return Ended
		}
		e.remove(e.at, e.at+1)
	case "up", "ctrl+p":
		e.vertical(-1, goal)
	case "down", "ctrl+n":
		e.vertical(1, goal)
	case "ctrl+r":
		e.startSearch()
	case "ctrl+l":
		e.write("\x1b[H\x1b[2J")
		e.screen = screen{}
	case "tab":
		e.tab()
	case pasted:
		e.paste(k.text)
	default:
		if k.text != "" {
			e.insert([]rune(k.text), true)
		} else if !e.move(k.name) {
			e.change(k.name)
		}
	}
	return Editing
}

// enter ends the line or the text.
func (e *Editor) enter() State {
	if e.mode.Line || e.lineEnd(e.at) == len(e.text) && e.c.Whole(string(e.text)) {
		return Accepted
	}
	indent := ""
	if len(e.in) == 0 { // else a program types, with its own indentation
		indent = e.c.Indent(string(e.text[:e.at]))
		for e.at < len(e.text) && e.text[e.at] == ' ' && e.lineBegin(e.at) < e.at {
			e.remove(e.at, e.at+1)
		}
	}
	e.insert([]rune("\n"+indent), false)
	return Editing
}

// paste inserts what the user pasted. Pasted lines that answer questions answer
// one each.
func (e *Editor) paste(text string) {
	if e.mode.Line {
		line, rest, more := strings.Cut(text, "\n")
		e.insert([]rune(line), false)
		if more {
			e.in = append([]byte("\r"+strings.ReplaceAll(rest, "\n", "\r")), e.in...)
		}
		return
	}
	e.insert([]rune(text), false)
}

// tab indents the line, or completes the name at the cursor.
func (e *Editor) tab() {
	begin := e.lineBegin(e.at)
	if e.mode.Line || strings.TrimSpace(string(e.text[begin:e.at])) == "" {
		e.insert([]rune(strings.Repeat(" ", oneLevel-(e.at-begin)%oneLevel)), false)
		return
	}
	start, matches, note := e.c.Complete(string(e.text), e.at)
	e.note = note
	if len(matches) == 0 || start < 0 || start > e.at {
		return
	}
	common := []rune(matches[0])
	for _, m := range matches[1:] {
		other := []rune(m)
		n := 0
		for n < len(common) && n < len(other) && common[n] == other[n] {
			n++
		}
		common = common[:n]
	}
	if typed := e.text[start:e.at]; len(matches) == 1 || len(common) > len(typed) {
		if !slices.Equal(typed, common) {
			e.remember()
			e.text = slices.Replace(e.text, start, e.at, common...)
			e.at = start + len(common)
		}
		return
	}
	columns, rows := e.c.Size()
	e.list = inColumns(matches, columns, max(rows/2, 3), e.c.Width)
}
