package prompt

import (
	"slices"
	"strings"
)

// search is a search in the history.
type search struct {
	query  []rune
	past   int // the cell that was found
	before edit
	state  string // shown after the query
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
