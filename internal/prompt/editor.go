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
	"unicode"
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

// search is a search in the history.
type search struct {
	query  []rune
	past   int // the cell that was found
	before edit
	state  string // shown after the query
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

// move moves the cursor. It reports whether the key does that.
func (e *Editor) move(name string) bool {
	switch name {
	case "left", "ctrl+b":
		e.at = max(0, e.at-1)
	case "right", "ctrl+f":
		e.at = min(len(e.text), e.at+1)
	case "home", "ctrl+a":
		e.at = e.lineBegin(e.at)
	case "end", "ctrl+e":
		e.at = e.lineEnd(e.at)
	case "ctrl+left", "alt+left", "alt+b":
		e.at = e.wordBegin(e.at)
	case "ctrl+right", "alt+right", "alt+f":
		e.at = e.wordEnd(e.at)
	case "ctrl+home", "alt+<", "pgup":
		e.at = 0
	case "ctrl+end", "alt+>", "pgdown":
		e.at = len(e.text)
	default:
		return false
	}
	return true
}

// change changes the text, if the key does that.
func (e *Editor) change(name string) {
	switch name {
	case "backspace":
		e.backspace()
	case "delete":
		e.remove(e.at, e.at+1)
	case "ctrl+w":
		e.kill(e.bigWordBegin(e.at), e.at)
	case "alt+backspace", "ctrl+backspace":
		e.kill(e.wordBegin(e.at), e.at)
	case "alt+d", "ctrl+delete", "alt+delete":
		e.kill(e.at, e.wordEnd(e.at))
	case "ctrl+k":
		end := e.lineEnd(e.at)
		if end == e.at {
			end++
		}
		e.kill(e.at, end)
	case "ctrl+u":
		e.kill(e.lineBegin(e.at), e.at)
	case "ctrl+y":
		e.insert(e.killed, false)
	case "ctrl+t":
		if b := e.lineBegin(e.at); e.at > b && e.lineEnd(e.at)-b > 1 {
			i := min(e.at, e.lineEnd(e.at)-1)
			two := []rune{e.text[i], e.text[i-1]}
			e.remove(i-1, i+1)
			e.insert(two, false)
		}
	case "ctrl+_", "ctrl+/":
		e.undoLast()
	case "shift+tab":
		b := e.lineBegin(e.at)
		n := 0
		for n < oneLevel && b+n < len(e.text) && e.text[b+n] == ' ' {
			n++
		}
		at := max(b, e.at-n)
		e.remove(b, b+n)
		e.at = at
	}
}

// backspace removes the character before the cursor, and one level of
// indentation.
func (e *Editor) backspace() {
	n := 1
	if b := e.lineBegin(e.at); e.at-b >= 2 && strings.Trim(string(e.text[b:e.at]), " ") == "" {
		n = (e.at-b-1)%oneLevel + 1
	}
	e.remove(e.at-n, e.at)
}

// insert inserts text at the cursor. Typed says that the user pressed a key for
// it: keys in a row are undone at once.
func (e *Editor) insert(text []rune, typed bool) {
	if len(text) == 0 {
		return
	}
	if !typed || !e.typing {
		e.remember()
	}
	e.typing = typed
	e.text = slices.Insert(e.text, e.at, text...)
	e.at += len(text)
}

// remove removes the text between two positions.
func (e *Editor) remove(from, to int) {
	from, to = max(from, 0), min(to, len(e.text))
	if from >= to {
		return
	}
	e.remember()
	e.typing = false
	e.text = slices.Delete(e.text, from, to)
	e.at = from
}

// kill removes text that Ctrl-Y inserts again.
func (e *Editor) kill(from, to int) {
	if from, to = max(from, 0), min(to, len(e.text)); from < to {
		e.killed = slices.Clone(e.text[from:to])
		e.remove(from, to)
	}
}

func (e *Editor) remember() {
	e.undo = append(e.undo, edit{slices.Clone(e.text), e.at})
	if len(e.undo) > maxUndo {
		e.undo = e.undo[1:]
	}
}

func (e *Editor) undoLast() {
	if n := len(e.undo); n > 0 {
		e.text, e.at = e.undo[n-1].text, e.undo[n-1].at
		e.undo, e.typing = e.undo[:n-1], false
	}
}

// replace replaces the whole text, with the cursor at its end.
func (e *Editor) replace(text string) {
	e.text = []rune(text)
	e.at, e.typing = len(e.text), false
}

func (e *Editor) lineBegin(at int) int {
	for at > 0 && e.text[at-1] != '\n' {
		at--
	}
	return at
}

func (e *Editor) lineEnd(at int) int {
	for at < len(e.text) && e.text[at] != '\n' {
		at++
	}
	return at
}

func (e *Editor) wordBegin(at int) int {
	for at > 0 && !isWord(e.text[at-1]) {
		at--
	}
	for at > 0 && isWord(e.text[at-1]) {
		at--
	}
	return at
}

func (e *Editor) wordEnd(at int) int {
	for at < len(e.text) && !isWord(e.text[at]) {
		at++
	}
	for at < len(e.text) && isWord(e.text[at]) {
		at++
	}
	return at
}

// bigWordBegin is the begin of the word before a position, where only spaces
// separate words.
func (e *Editor) bigWordBegin(at int) int {
	for at > 0 && unicode.IsSpace(e.text[at-1]) {
		at--
	}
	for at > 0 && !unicode.IsSpace(e.text[at-1]) {
		at--
	}
	return at
}

// vertical moves the cursor one line up or down, or to another cell of the
// history.
func (e *Editor) vertical(by, goal int) {
	begin, end := e.lineBegin(e.at), e.lineEnd(e.at)
	if goal < 0 {
		goal = e.at - begin
	}
	switch {
	case by < 0 && begin > 0:
		to := e.lineBegin(begin - 1)
		e.at = min(to+goal, begin-1)
	case by > 0 && end < len(e.text):
		e.at = min(end+1+goal, e.lineEnd(end+1))
	default:
		e.recall(e.past - by)
		return
	}
	e.goal = goal
}

// recall shows a cell of the history.
func (e *Editor) recall(past int) {
	if e.mode.Line || past < 0 || past > len(e.c.History.cells) {
		return
	}
	e.remember()
	if e.past == 0 {
		e.draft = string(e.text)
	}
	if e.past = past; past == 0 {
		e.replace(e.draft)
		return
	}
	e.replace(e.c.History.at(past))
}

// startSearch begins a search in the history. What the user has typed is searched
// first.
func (e *Editor) startSearch() {
	if e.mode.Line {
		return
	}
	e.search = &search{before: edit{slices.Clone(e.text), e.at}}
	if len(e.text) > 0 && !slices.Contains(e.text, '\n') {
		e.search.query = slices.Clone(e.text)
		e.find(1)
	}
}

// find shows the newest cell, from this one on, that contains the query.
func (e *Editor) find(past int) {
	s := e.search
	for ; len(s.query) > 0 && past <= len(e.c.History.cells); past++ {
		cell := e.c.History.at(past)
		i := strings.Index(cell, string(s.query))
		if i < 0 || cell == string(e.text) && past != s.past {
			continue
		}
		e.replace(cell)
		e.at = len([]rune(cell[:i]))
		s.past, e.past, s.state = past, past, ""
		return
	}
	if s.state = ""; len(s.query) > 0 {
		s.state = " (no more)"
	}
}

// searchKey handles a key of a search. It returns false if the key ended the
// search and has its usual meaning.
func (e *Editor) searchKey(k key) bool {
	s := e.search
	switch k.name {
	case "ctrl+r":
		e.find(s.past + 1)
	case "backspace":
		if n := len(s.query); n > 0 {
			s.query = s.query[:n-1]
			e.find(1)
		}
	case "ctrl+g":
		e.text, e.at = s.before.text, s.before.at
		e.search = nil
	case "esc":
		e.search = nil
	default:
		if k.text == "" || k.name == pasted {
			e.search = nil
			if k.name == "enter" {
				e.at = len(e.text)
			}
			return false
		}
		s.query = append(s.query, []rune(k.text)...)
		e.find(max(s.past, 1))
	}
	return true
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
