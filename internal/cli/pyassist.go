package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
)

// inspectWait limits how long the prompt waits for the answer to a question.
const inspectWait = 5 * time.Second

const (
	ctrlR    = 'R' & 0x1f
	keyTab   = '\t'
	oneLevel = "    " // of indentation
)

// assist helps a user who types: it completes names by asking the interpreter,
// and finds lines of the history. The goroutine that reads the line calls it.
type assist struct {
	ctx     context.Context
	run     *spool.Run
	asks    spool.Inspector // nil if the backend has none
	history *history
	columns func() int
	show    func(text string) // prints above the line

	// before is the text of the cell above the line; nil while the line
	// answers input().
	before atomic.Pointer[string]

	query string // what Ctrl-R searches
	found string // the line it found last
	next  int    // the entry of the history to go on from
}

// key implements the callback of a [golang.org/x/term.Terminal].
func (a *assist) key(line string, pos int, key rune) (string, int, bool) {
	switch key {
	case ctrlR:
		return a.search(line)
	case keyTab:
		before := a.before.Load()
		if before == nil || strings.TrimSpace(line[:pos]) == "" {
			return line[:pos] + oneLevel + line[pos:], pos + len(oneLevel), true
		}
		return a.complete(*before, line, pos)
	}
	return "", 0, false
}

// search shows the last line of the history that contains the typed text, and with
// every further Ctrl-R an older one.
func (a *assist) search(line string) (string, int, bool) {
	if a.found == "" || line != a.found {
		a.query, a.next = line, 0
	}
	for ; a.next < a.history.Len(); a.next++ {
		if old := a.history.At(a.next); old != line && strings.Contains(old, a.query) {
			a.next++
			a.found = old
			return old, len(old), true
		}
	}
	return "", 0, false
}

// complete replaces the name at the cursor by what all completions have in common,
// or lists them.
func (a *assist) complete(before, line string, pos int) (string, int, bool) {
	code := before + line[:pos]
	answer, err := a.ask(inspect.Question{Op: inspect.Complete, Code: code, Cursor: utf8.RuneCountInString(code)})
	if err != nil {
		a.show(describeAskError(err))
		return line, pos, true
	}
	start := answer.Start - utf8.RuneCountInString(before)
	typed := []rune(line[:pos])
	if len(answer.Matches) == 0 || start < 0 || start > len(typed) {
		return line, pos, true
	}
	common := answer.Matches[0]
	for _, m := range answer.Matches[1:] {
		for !strings.HasPrefix(m, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	have := string(typed[start:])
	if len(answer.Matches) > 1 && len(common) <= len(have) {
		a.show(inColumns(answer.Matches, a.columns()))
		return line, pos, true
	}
	head := string(typed[:start]) + common
	return head + line[pos:], len(head), true
}

// ask asks the interpreter.
func (a *assist) ask(q inspect.Question) (inspect.Answer, error) {
	var answer inspect.Answer
	if a.asks == nil {
		return answer, spool.ErrUnsupported
	}
	data, err := json.Marshal(q)
	if err != nil {
		return answer, fmt.Errorf("encode the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(a.ctx, inspectWait)
	defer cancel()
	reply, err := a.asks.Inspect(ctx, a.run.ID(), data)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(reply, &answer)
}

// describeAskError is a line for the user about a question without an answer.
func describeAskError(err error) string {
	switch {
	case errors.Is(err, spool.ErrBusy):
		return "spool: the interpreter is busy; try again when the cell is done"
	case errors.Is(err, spool.ErrUnsupported):
		return "spool: this interpreter does not answer questions"
	}
	return "spool: " + err.Error()
}

// maxListed limits the completions that are listed.
const maxListed = 200

// inColumns lays out names in columns, as ls does.
func inColumns(names []string, width int) string {
	more := ""
	if n := len(names) - maxListed; n > 0 {
		names, more = names[:maxListed], fmt.Sprintf("\n… %d more", n)
	}
	widest := 0
	for _, n := range names {
		widest = max(widest, utf8.RuneCountInString(n))
	}
	columns := max(1, width/(widest+2))
	rows := (len(names) + columns - 1) / columns
	var b strings.Builder
	for r := range rows {
		if r > 0 {
			b.WriteByte('\n')
		}
		for c := r; c < len(names); c += rows {
			text := plain(names[c])
			b.WriteString(text)
			if c+rows < len(names) {
				b.WriteString(strings.Repeat(" ", max(1, widest+2-utf8.RuneCountInString(names[c]))))
			}
		}
	}
	return b.String() + more
}

// askedObject matches a line that asks about an object: obj?, obj?? or ?obj.
var askedObject = regexp.MustCompile(`^\s*(?:(\?\??)\s*([%\w.\[\]'"-]+)|([%\w.\[\]'"-]+)\s*(\?\??))\s*$`)

// describe prints what an object is if the cell asks that. It reports whether the
// cell does.
func (r *repl) describe(source string) (bool, error) {
	m := askedObject.FindStringSubmatch(source)
	if m == nil {
		return false, nil
	}
	name, marks := m[2]+m[3], m[1]+m[4]
	answer, err := r.assist.ask(inspect.Question{Op: inspect.Describe, Code: name, Source: marks == "??"})
	text := answer.Text
	switch {
	case err != nil:
		text = describeAskError(err)
	case text == "":
		text = "Object `" + name + "` not found."
	}
	_, err = fmt.Fprintln(r.printer.stdout, text)
	return true, err
}

// indentation is what the next line of an unfinished cell begins with: as the last
// line, and one level more after a colon, one less after a statement that leaves
// the block.
func indentation(source string) string {
	last := source[strings.LastIndexByte(source, '\n')+1:]
	text := strings.TrimSpace(last)
	indent := last[:len(last)-len(strings.TrimLeft(last, " \t"))]
	s := scanSource(source)
	switch {
	case text == "" || s.open || s.continued:
		return indent
	case strings.HasSuffix(text, ":"):
		return indent + oneLevel
	}
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "return", "pass", "break", "continue", "raise":
		return strings.TrimSuffix(indent, oneLevel)
	}
	return indent
}
