package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/spool-run/spool"
)

// input sends input to the run: bytes for standard input, or an [spool.Input].
func (c *call) input() error {
	got, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || got != "application/json" && got != "application/octet-stream" {
		return problemf("media_type", "the body must be application/octet-stream, for standard input, or application/json")
	}
	if got == "application/json" {
		if c.query.Has("id") || c.query.Has("eof") {
			return problemf("invalid", "id and eof go with application/octet-stream; in JSON they are members")
		}
		var in spool.Input
		if err := c.decode(&in, "input"); err != nil {
			return err
		}
		return c.sendInput(in)
	}
	b, err := c.readBody(c.server.limits.Stdin)
	if err != nil {
		return err
	}
	if !c.flag("eof") {
		return c.sendInput(spool.Input{ID: c.text("id"), Kind: spool.InputStdin, Bytes: b})
	}
	end := spool.Input{ID: c.text("id"), Kind: spool.InputEOF}
	if len(b) > 0 {
		if _, err := c.backend.Send(c.ctx, c.run(), spool.Input{ID: end.ID, Kind: spool.InputStdin, Bytes: b}); err != nil {
			return err
		}
		if end.ID != "" {
			end.ID += " end" // they are two inputs
		}
	}
	return c.sendInput(end)
}

func (c *call) sendInput(in spool.Input) error {
	receipt, err := c.backend.Send(c.ctx, c.run(), in)
	if err != nil {
		return full(err)
	}
	return c.reply(http.StatusAccepted, receipt)
}

// full turns the error of a run that has too much waiting into its problem.
func full(err error) error {
	var p *Problem
	if errors.Is(err, spool.ErrBusy) && !errors.As(err, &p) {
		p := problemf("queue_full", "%s", err)
		p.RetryAfterMs = 1000
		return p
	}
	return err
}

// TurnRequest begins a turn: it has a cell or a prompt.
type TurnRequest struct {
	// ID makes the request idempotent: a repeated one names the same turn.
	ID     string        `json:"id,omitempty"`
	Cell   *spool.Cell   `json:"cell,omitempty"`
	Prompt *spool.Prompt `json:"prompt,omitempty"`
}

// TurnInfo describes a turn.
type TurnInfo struct {
	Seq   spool.Seq       `json:"seq"` // of the input event that began it
	Kind  spool.InputKind `json:"kind,omitempty"`
	Began time.Time       `json:"began,omitzero"`
	Done  *spool.Done     `json:"done,omitempty"` // nil while it waits or runs
	// Repeated says that the id was known and nothing was begun.
	Repeated bool `json:"repeated,omitempty"`
}

// TurnList is a page of turns.
type TurnList struct {
	Turns []TurnInfo `json:"turns"`
	Next  spool.Seq  `json:"next,omitempty"` // the cursor of the next page; zero after the last one
}

func (c *call) beginTurn() error {
	form, err := c.accepts(formSSE, formJSON)
	if err != nil {
		return err
	}
	var r TurnRequest
	if err := c.decode(&r, "turn"); err != nil {
		return err
	}
	in := spool.Input{ID: r.ID}
	switch {
	case (r.Cell == nil) == (r.Prompt == nil):
		return problemf("invalid", "a turn has either a cell or a prompt")
	case r.Cell != nil:
		in.Kind = spool.InputCell
		in.Data, err = json.Marshal(r.Cell)
	default:
		in.Kind = spool.InputPrompt
		in.Data, err = json.Marshal(r.Prompt)
	}
	if err != nil {
		return fmt.Errorf("encode the turn: %w", err)
	}
	receipt, err := c.backend.Send(c.ctx, c.run(), in)
	if err != nil {
		return full(err)
	}
	status := http.StatusCreated
	if receipt.Repeated {
		status = http.StatusOK
	}
	turn := TurnInfo{Seq: receipt.Seq, Kind: in.Kind, Repeated: receipt.Repeated}
	h := c.w.Header()
	h.Add("Vary", "Accept")
	h.Set("Location", fmt.Sprintf("/v1/runs/%s/turns/%d", c.run(), turn.Seq))
	if form == formSSE {
		return c.streamTurn(status, turn.Seq)
	}
	if err := c.awaitTurn(&turn); err != nil {
		return err
	}
	return c.reply(status, turn)
}

// awaitTurn waits for the end of a turn as long as the client wants.
func (c *call) awaitTurn(t *TurnInfo) error {
	wait := c.wait()
	if wait == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	done, err := c.handle().Turn(t.Seq).Wait(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(c.ctx) // nil if only the time is up
		}
		return err
	}
	t.Done = &done
	return nil
}

func (c *call) getTurn() error {
	seq, err := c.seq()
	if err != nil {
		return problemf("no_turn", "%.100q is no number of a turn", c.r.PathValue("seq"))
	}
	page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return err
	}
	var turn TurnInfo
	if len(page.Events) == 0 || page.Events[0].Seq != seq || !turn.began(&page.Events[0]) {
		return problemf("no_turn", "no turn began with event %d", seq)
	}
	form, err := c.accepts(formSSE, formJSON)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	if form == formSSE {
		return c.streamTurn(http.StatusOK, seq)
	}
	if err := c.awaitTurn(&turn); err != nil && !errors.Is(err, spool.ErrEnded) {
		return err
	}
	if turn.Done == nil {
		if err := c.findDone(&turn, page.Info.Last); err != nil {
			return err
		}
	}
	return c.reply(http.StatusOK, turn)
}

// began reports whether an event began a turn, and describes the turn.
func (t *TurnInfo) began(e *spool.Event) bool {
	var said spool.Said
	if e.Kind != spool.KindInput || json.Unmarshal(e.Data, &said) != nil || said.Kind != spool.InputCell && said.Kind != spool.InputPrompt {
		return false
	}
	t.Seq, t.Kind, t.Began = e.Seq, said.Kind, e.Time
	return true
}

// findDone looks for the end of a turn in the log as it is now.
func (c *call) findDone(t *TurnInfo, last spool.Seq) error {
	return c.each(t.Seq, last, func(e *spool.Event) bool {
		t.ended(e)
		return t.Done == nil
	})
}

// ended notes the end of the turn, if the event is that.
func (t *TurnInfo) ended(e *spool.Event) {
	var done spool.Done
	if e.Kind == spool.KindDone && e.Turn == t.Seq && json.Unmarshal(e.Data, &done) == nil {
		t.Done = &done
	}
}

// each calls do for the events after a cursor up to last, until it returns false.
func (c *call) each(after, last spool.Seq, do func(e *spool.Event) bool) error {
	for after < last {
		page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: after})
		if err != nil {
			return err
		}
		for i := range page.Events {
			if page.Events[i].Seq > last || !do(&page.Events[i]) {
				return nil
			}
		}
		if page.Next == after {
			return nil
		}
		after = page.Next
	}
	return nil
}

func (c *call) listTurns() error {
	info, err := c.backend.Stat(c.ctx, c.run())
	if err != nil {
		return err
	}
	list := TurnList{Turns: []TurnInfo{}}
	limit, open := int(c.number("limit", listPage)), 0
	err = c.each(spool.Seq(c.number("after", 0)), info.Last, func(e *spool.Event) bool {
		var turn TurnInfo
		switch {
		case turn.began(e) && len(list.Turns) == limit:
			list.Next = list.Turns[limit-1].Seq
		case turn.Seq != 0:
			list.Turns = append(list.Turns, turn)
			open++
		case e.Kind == spool.KindDone:
			for i := range list.Turns {
				if t := &list.Turns[i]; t.Done == nil && t.Seq == e.Turn {
					t.ended(e)
					open--
				}
			}
		}
		return list.Next == 0 || open > 0
	})
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, list)
}

// AnswerRequest answers an ask: it has data or an error.
type AnswerRequest struct {
	ID    string             `json:"id,omitempty"` // a repeated answer with the same id is taken once
	Data  json.RawMessage    `json:"data,omitempty"`
	Error *spool.AnswerError `json:"error,omitempty"`
	// Retype is the command again, where the ask has the member retype and is allowed.
	Retype string `json:"retype,omitempty"`
}

func (c *call) answer() error {
	seq, err := c.seq()
	if err != nil {
		return err
	}
	var r AnswerRequest
	if err := c.decode(&r, "answer"); err != nil {
		return err
	}
	if (len(r.Data) == 0) == (r.Error == nil) {
		return problemf("invalid", "an answer has either data or an error")
	}
	a := spool.Answer{Ask: seq, Data: r.Data, Error: r.Error, By: c.subject.String(), Retype: r.Retype}
	data, err := json.Marshal(a)
	if err != nil {
		return problemf("invalid", "encode the answer: %s", err)
	}
	_, err = c.handle().Send(c.ctx, spool.Input{ID: r.ID, Kind: spool.InputAnswer, Data: data}) // the ask says whether it is secret
	if errors.Is(err, spool.ErrNotAsked) {
		return c.notAsked(seq, err)
	}
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, struct{}{})
}

// notAsked says whose answer counted.
func (c *call) notAsked(ask spool.Seq, err error) error {
	p := problemf("not_asked", "%s", err)
	info, statErr := c.backend.Stat(c.ctx, c.run())
	if statErr != nil {
		return p
	}
	var turn spool.Seq
	_ = c.each(ask-1, info.Last, func(e *spool.Event) bool { // what is not found is not said
		if e.Seq == ask {
			turn = e.Turn
			var asked spool.Ask
			if e.Kind == spool.KindAsk && json.Unmarshal(e.Data, &asked) == nil && asked.Answer != nil {
				p.By, p.Time = asked.Answer.By, e.Time
				return false
			}
			return e.Kind == spool.KindAsk
		}
		if !e.ClosesAsk(ask, turn) {
			return true
		}
		p.Time = e.Time
		var said spool.Said
		var a spool.Answer
		if json.Unmarshal(e.Data, &said) == nil && json.Unmarshal(said.Data, &a) == nil {
			p.By = a.By
		}
		return false
	})
	return p
}

// Inspection is a question to a live interpreter, see [spool.Inspector].
func (c *call) inspect() error {
	b, err := c.body("application/json", c.server.limits.Body)
	if err != nil {
		return err
	}
	if !json.Valid(b) {
		return problemf("bad_json", "the body does not parse as JSON")
	}
	inspector, err := power[spool.Inspector](c, "inspect runs")
	if err != nil {
		return err
	}
	answer, err := inspector.Inspect(c.ctx, c.run(), b)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, formJSON, append(answer, '\n'))
}
