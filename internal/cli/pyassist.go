package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/prompt"
)

// inspectWait limits how long the prompt waits for the answer to a question.
const inspectWait = 30 * time.Second

// oneLevel is one level of indentation.
const oneLevel = "    "

// assist asks the interpreter for a user who types.
type assist struct {
	ctx  context.Context
	run  *spool.Run
	asks spool.Inspector // nil if the backend has none
}

// complete returns what may replace the code from start to the cursor, or a note
// for the user.
func (a *assist) complete(code string, cursor int) (start int, matches []string, note string) {
	answer, err := a.ask(inspect.Question{Op: inspect.Complete, Code: code, Cursor: cursor})
	if err != nil {
		return 0, nil, describeAskError(err)
	}
	for _, m := range answer.Matches {
		if plain(m) == m { // else it cannot be typed
			matches = append(matches, m)
		}
	}
	return answer.Start, matches, ""
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

// askedObject matches a line that asks about an object: obj?, obj?? or ?obj.
var askedObject = lazyregexp.New(`^\s*(?:(\?\??)\s*([%\w.\[\]'"-]+)|([%\w.\[\]'"-]+)\s*(\?\??))\s*$`)

// describe prints what an object is if the cell asks that. It reports whether the
// cell does.
func (r *repl) describe(source string) (bool, error) {
	m := askedObject().FindStringSubmatch(source)
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
	if before, source, ok := strings.Cut(text, "\nSource:\n"); ok && r.printer.colour {
		text = before + "\nSource:\n" + prompt.Highlight(source)
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
