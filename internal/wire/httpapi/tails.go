package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/visible"
)

const (
	maxTails     = 100  // runs of one request
	tailText     = 200  // bytes of a line
	tailEvents   = 32   // that are looked at, from the end
	tailMaxBytes = 1024 // of an event
)

// TailList is the last words of runs.
type TailList struct {
	Tails []RunTail `json:"tails"`
}

// RunTail is the last line that a run wrote, or the last that an agent said.
type RunTail struct {
	Run  spool.RunID `json:"run"`
	Seq  spool.Seq   `json:"seq"`  // the event in which it is
	Text string      `json:"text"` // without escape sequences, at most 200 bytes
}

// tails answers with the last line of each run of the query that has one.
func (c *call) tails() error {
	if n := len(c.query["run"]); n == 0 || n > maxTails {
		return problemf("invalid", "the query names %d runs; it may name 1 to %d", n, maxTails)
	}
	list := TailList{Tails: []RunTail{}}
	for _, id := range c.query["run"] {
		tail, err := c.lastLine(spool.RunID(id))
		switch {
		case errors.Is(err, spool.ErrNotFound): // it was removed
		case err != nil:
			return err
		case tail.Text != "":
			list.Tails = append(list.Tails, tail)
		}
	}
	return c.reply(http.StatusOK, list)
}

// lastLine looks for the last line at the end of the log of a run.
func (c *call) lastLine(id spool.RunID) (RunTail, error) {
	info, err := c.backend.Stat(c.ctx, id)
	if err != nil || info.Last == 0 {
		return RunTail{}, err
	}
	tail := RunTail{Run: id}
	for at := info.Last - min(info.Last, tailEvents); at < info.Last; {
		page, err := c.backend.Read(c.ctx, id, spool.Query{After: at, MaxBytes: c.server.limits.StreamPage})
		if err != nil {
			return RunTail{}, err
		}
		for i := range page.Events {
			if text := lastWords(&page.Events[i]); text != "" {
				tail.Seq, tail.Text = page.Events[i].Seq, text
			}
		}
		if page.Next == at || c.ctx.Err() != nil {
			return tail, context.Cause(c.ctx)
		}
		at = page.Next
	}
	return tail, nil
}

// lastWords returns the last line of an event that has text for people.
func lastWords(e *spool.Event) string {
	b := e.Bytes
	switch e.Kind {
	case spool.KindOutput:
	case "message":
		var said struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(e.Data, &said) != nil {
			return ""
		}
		b = []byte(said.Text)
	default:
		return ""
	}
	b = b[max(0, len(b)-tailMaxBytes):]
	lines := strings.FieldsFunc(visible.Unstyled(string(b)), func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(visible.Line(strings.ToValidUTF8(line, "\ufffd")))
		if len(line) > tailText {
			line = strings.ToValidUTF8(line[:tailText], "") // not half a character
		}
		if line != "" {
			return line
		}
	}
	return ""
}
