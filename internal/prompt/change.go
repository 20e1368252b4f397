package prompt

import (
	"slices"
	"strings"
	"unicode"
)

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
