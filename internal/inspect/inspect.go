// Package inspect holds the questions that a prompt asks a live interpreter
// between two cells: how a name goes on, and what an object is. The Python code
// that answers them is here, too; an engine sends it along with the question, so
// that an interpreter which is never asked has nothing to load.
package inspect

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// The questions.
const (
	Complete = "complete" // how the code may go on at the cursor
	Describe = "describe" // what the object is that the code names
	Check    = "check"    // whether the code is a whole cell
)

// Question asks about the state of an interpreter. It is the JSON that
// [spool.Inspector] takes.
type Question struct {
	Op   string `json:"op"`
	Code string `json:"code"`
	// Cursor is where to complete, in characters.
	Cursor int `json:"cursor,omitempty"`
	// Source includes the source of the object in its description.
	Source bool `json:"source,omitempty"`
}

// MaxCode limits the code of a question, in bytes.
const MaxCode = 1 << 20

// MaxMatches limits the completions of an answer.
const MaxMatches = 1000

// Answer is the JSON that [spool.Inspector] returns.
type Answer struct {
	// Matches are texts that may replace the code from the character Start to
	// the cursor, sorted.
	Matches []string `json:"matches,omitempty"`
	Start   int      `json:"start,omitempty"`
	// Text describes the object, or is empty if there is none.
	Text string `json:"text,omitempty"`
	// Status of code is complete, incomplete or invalid. Indent is what the next
	// line of incomplete code begins with.
	Status string `json:"status,omitempty"`
	Indent string `json:"indent,omitempty"`
}

// Source is Python code that defines answer(question, namespace, magics): the
// question is a dict with the keys op, code, cursor and source; magics are the
// names of the line magics and of the cell magics.
//
//go:embed inspect.py
var Source string

// Decode reads a question and checks it.
func Decode(data json.RawMessage) (Question, error) {
	var q Question
	if err := json.Unmarshal(data, &q); err != nil {
		return q, fmt.Errorf("decode question: %w: %w", spool.ErrInvalid, err)
	}
	if q.Op != Complete && q.Op != Describe && q.Op != Check {
		return q, fmt.Errorf("question %q: %w", q.Op, spool.ErrUnsupported)
	}
	if len(q.Code) > MaxCode {
		return q, fmt.Errorf("question about %d bytes of code, of at most %d: %w", len(q.Code), MaxCode, spool.ErrInvalid)
	}
	return q, nil
}
