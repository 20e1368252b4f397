package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Ask is the payload of an ask event: a question that a run puts to its host
// and waits for. Its seq is how an [Answer] refers to it. It is open until it
// is answered, its turn ends, or a notice with [NoticeAskClosed] says so; see
// [Event.OpensAsk] and [Event.ClosesAsk].
type Ask struct {
	// Kind says what is asked: input, tool, approval, question, or the
	// name of a service such as fs.read.
	Kind string `json:"kind"`
	// Name is that of the tool, or what an approval is for.
	Name   string `json:"name,omitempty"`
	Prompt string `json:"prompt,omitempty"` // for a person
	// Secret asks for an answer that is not logged or shown. The log leaves
	// the answer out, whether or not it is sent with [Input.Secret].
	Secret bool `json:"secret,omitempty"`
	// Data are the arguments.
	Data json.RawMessage `json:"data,omitempty"`
	// Options are the answers to choose from; without any, all are free.
	Options []AskOption `json:"options,omitempty"`
	// Deadline is when the run stops waiting, if it does.
	Deadline time.Time `json:"deadline,omitzero"`
	// Retype is whether a person must type it again to allow it, because a rule of
	// the policy says that it is dangerous: an answer without [Answer.Retype] is not taken.
	Retype bool `json:"retype,omitempty"`
	// Answer is what the policy of the run decided. Such an ask was never
	// open, and no other answer is taken.
	Answer *Answer `json:"answer,omitempty"`
}

// The kinds of ask; package agent has more, and a sandbox those that its
// configuration offers.
const (
	AskInput = "input" // a line of text, as input() asks for
	AskTool  = "tool"  // a call of a host tool: Name, Data
)

// AskOption is one answer to choose: its ID is the answer's data.
type AskOption struct {
	ID    string `json:"id"`
	Label string `json:"label,omitempty"`
	// Kind says what choosing it means, such as allow_once, allow_always,
	// reject_once, reject_always.
	Kind string `json:"kind,omitempty"`
}

// Answer is the payload of an [InputAnswer].
type Answer struct {
	Ask   Seq             `json:"ask,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error *AnswerError    `json:"error,omitempty"` // it could not be done
	By    string          `json:"by,omitempty"`    // who answered: a person, a policy, a program
	// Retype is the text that was typed again; see [Ask.RetypeText].
	Retype string `json:"retype,omitempty"`
}

// AnswerError is why the host did not do what it was asked.
type AnswerError struct {
	Code    string `json:"code,omitempty"` // such as ENOENT
	Message string `json:"message"`
}

// NoticeAskClosed is the code of the notice that a run no longer waits for
// the answer to an ask.
const NoticeAskClosed = "ask_closed"

// Answer answers an ask. Only the first answer counts: another one gives
// [ErrNotAsked]. One that allows what is dangerous needs [Answer.Retype], or it gives
// [ErrNotRetyped] and the ask stays open.
func (r *Run) Answer(ctx context.Context, a Answer, secret bool) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = r.Send(ctx, Input{Kind: InputAnswer, Data: data, Secret: secret})
	return err
}

// Reply answers an ask with a value that encodes as JSON.
func (r *Run) Reply(ctx context.Context, ask Seq, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode reply: %w", err)
	}
	return r.Answer(ctx, Answer{Ask: ask, Data: data}, false)
}

// Tool is a function of the host that a run may call. What it returns must
// encode as JSON.
type Tool func(ctx context.Context, args json.RawMessage) (any, error)

// ServeTools answers the run's calls of these tools, each in its own time,
// until the run ends or ctx does. Asks of other kinds are left to others, and
// so are tools that are not among these. A call is cancelled with its turn.
func (r *Run) ServeTools(ctx context.Context, after Seq, tools map[string]Tool) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	open := make(map[Seq]call)
	for e, err := range r.Events(ctx, after) {
		if err != nil {
			return err
		}
		switch e.Kind {
		case KindAsk:
			var a Ask
			if json.Unmarshal(e.Data, &a) != nil || a.Kind != AskTool || a.Answer != nil || tools[a.Name] == nil {
				continue
			}
			callCtx, cancel := context.WithCancel(ctx)
			open[e.Seq] = call{e.Turn, cancel}
			calls.Go(func() { r.call(callCtx, e.Seq, tools[a.Name], a.Data) })
		case KindDone, KindNotice, KindInput:
			for seq, c := range open {
				if e.ClosesAsk(seq, c.turn) {
					c.cancel()
					delete(open, seq)
				}
			}
		}
	}
	return nil
}

// call is one that is under way.
type call struct {
	turn   Seq
	cancel context.CancelFunc
}

func (r *Run) call(ctx context.Context, ask Seq, tool Tool, args json.RawMessage) {
	answer := Answer{Ask: ask, By: "host"}
	value, err := tool(ctx, args)
	if err == nil {
		answer.Data, err = json.Marshal(value)
	}
	if err != nil {
		answer.Error = &AnswerError{Message: err.Error()}
	}
	// An error means that the run no longer waits for the answer.
	_ = r.Answer(context.WithoutCancel(ctx), answer, false)
}

// OpensAsk reports whether the event is an ask that waits for an answer.
func (e *Event) OpensAsk() bool {
	if e.Kind != KindAsk {
		return false
	}
	if !bytes.Contains(e.Data, []byte(`"answer"`)) { // it may be large
		return true
	}
	var a Ask
	return json.Unmarshal(e.Data, &a) != nil || a.Answer == nil
}

// ClosesAsk reports whether the event says that an ask of some turn is no
// longer open: it was answered, its turn ended, or the run stopped waiting.
func (e *Event) ClosesAsk(ask, turn Seq) bool {
	switch e.Kind {
	case KindDone:
		return turn != 0 && e.Turn == turn
	case KindNotice:
		var n Notice
		return json.Unmarshal(e.Data, &n) == nil && n.Code == NoticeAskClosed && n.Ask == ask
	case KindInput:
		var s Said
		var a Answer
		return json.Unmarshal(e.Data, &s) == nil && s.Kind == InputAnswer &&
			json.Unmarshal(s.Data, &a) == nil && a.Ask == ask
	}
	return false
}

// ErrNotAsked says that an answer has no open ask: it was answered, or it
// never was one.
var ErrNotAsked = errors.New("nothing was asked, or it is answered")
