package acpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// openAsk is an ask that the client is, or will be, asked about.
type openAsk struct {
	run      spool.RunID
	seq      spool.Seq
	turn     spool.Seq
	ask      spool.Ask
	cancel   context.CancelFunc // nil until the client is asked
	answered atomic.Bool        // by this client
}

// noteAsk handles an event that opens an ask, or closes some.
func (s *session) noteAsk(ctx context.Context, e *spool.Event, live bool) {
	s.asks = slices.DeleteFunc(s.asks, func(a *openAsk) bool {
		closed := e.Kind == spool.KindClosed || e.ClosesAsk(a.seq, a.turn)
		if closed && a.cancel != nil {
			a.cancel()
			s.tellAnswer(a, e)
		}
		return closed
	})
	a := &openAsk{run: e.Run, seq: e.Seq, turn: e.Turn}
	if !e.OpensAsk() || json.Unmarshal(e.Data, &a.ask) != nil {
		return
	}
	s.asks = append(s.asks, a)
	if live {
		s.startAsks(ctx)
	}
}

// tellAnswer tells the client who answered what it was asked, if that was somebody else.
func (s *session) tellAnswer(a *openAsk, e *spool.Event) {
	var in spool.Said
	var answer spool.Answer
	if e.Kind != spool.KindInput || json.Unmarshal(e.Data, &in) != nil || json.Unmarshal(in.Data, &answer) != nil {
		return
	}
	if a.answered.Load() && answer.By == s.client.by() {
		return
	}
	text := "Answered by " + cmp.Or(answer.By, "somebody else")
	var d agent.Decision
	if json.Unmarshal(answer.Data, &d.Choice) == nil || json.Unmarshal(answer.Data, &d) == nil && d.Choice != "" {
		text += ": " + d.Choice
	}
	s.tell(a.run, text+".\n")
}

// startAsks asks the client what it was not asked yet.
func (s *session) startAsks(ctx context.Context) {
	for _, a := range s.asks {
		if a.cancel != nil {
			continue
		}
		var asking context.Context
		asking, a.cancel = context.WithCancel(ctx)
		tool := s.permissionCall(a)
		s.client.begin(func() { s.ask(asking, a, &tool) })
	}
}

// dropAsks gives up what the client is asked. Others may answer.
func (s *session) dropAsks() {
	for _, a := range s.asks {
		if a.cancel != nil {
			a.cancel()
		}
	}
	s.asks = nil
}

// ask asks the client, and answers with what its user says. Without an answer the ask
// stays open: not now is not no.
func (s *session) ask(ctx context.Context, a *openAsk, tool *toolUpdate) {
	defer a.cancel()
	var data json.RawMessage
	var err error
	questions := questionsOf(&a.ask)
	switch {
	case a.ask.Secret || a.ask.Kind == spool.AskTool:
		s.pointTo(a)
		return
	case a.ask.Kind == agent.AskApproval || len(questions) == 0 && len(a.ask.Options) > 0:
		data, err = s.askPermission(ctx, tool, approvalOptions(&a.ask))
	case s.client.abilities().forms:
		data, err = s.askForm(ctx, a, questions)
	default:
		data, err = s.askQuestions(ctx, a, tool, questions)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.client.conn.log.Warn("the client was not asked", "run", a.run, "ask", a.seq, "error", err)
		}
		return
	}
	if data == nil {
		return
	}
	answer := spool.Answer{Ask: a.seq, Data: data, By: s.client.by()}
	if a.ask.CheckRetype(&answer) != nil {
		if answer.Retype, err = s.retype(ctx, a); err != nil || answer.Retype == "" {
			return // not now is not no
		}
	}
	a.answered.Store(true)
	err = s.run(a.run).Answer(context.WithoutCancel(ctx), answer, false)
	if err != nil && !errors.Is(err, spool.ErrNotAsked) && !errors.Is(err, spool.ErrInputClosed) {
		s.client.conn.log.Warn("the answer was not taken", "run", a.run, "ask", a.seq, "error", err)
		s.tell(a.run, "⚠ The answer was not taken: "+err.Error()+"\n")
	}
}

// retype has the user type again what is dangerous and was allowed. It is empty if the user
// did not. A client without forms has no way to type: its dialog of permissions has shown
// what is allowed, and that has to do.
func (s *session) retype(ctx context.Context, a *openAsk) (string, error) {
	if !s.client.abilities().forms {
		return a.ask.RetypeText(), nil
	}
	form := openAsk{run: a.run, seq: a.seq, ask: spool.Ask{Prompt: "This is dangerous. To allow it, type it again: " + a.ask.RetypeText()}}
	data, err := s.askForm(ctx, &form, nil)
	var typed string
	if err != nil || data == nil || json.Unmarshal(data, &typed) != nil {
		return "", err
	}
	return typed, nil
}

// questionsOf are those of an ask that has some.
func questionsOf(ask *spool.Ask) []agent.Question {
	var q agent.Questions
	if ask.Kind != agent.AskQuestion || json.Unmarshal(ask.Data, &q) != nil {
		return nil
	}
	return q.Questions
}

// permissionCall is the tool call that a permission is for.
func (s *session) permissionCall(a *openAsk) toolUpdate {
	var what agent.Approval
	_ = json.Unmarshal(a.ask.Data, &what) // an ask of another kind has none of it
	u := toolUpdate{Title: cmp.Or(a.ask.Prompt, a.ask.Name, a.ask.Kind), Status: "pending", Meta: meta{place{Run: string(a.run), Seq: uint64(a.seq)}}}
	if u.ID = s.mapper.unique(what.Action); what.Action == "" {
		u.ID = s.mapper.unique(fmt.Sprintf("ask%d", a.seq))
	}
	u.Kind = "other"
	if a.ask.Kind == agent.AskApproval {
		u.Kind, u.Name = kindOf(what.Kind, what.Changes), what.Tool
	}
	u.Content, u.Locations = s.mapper.diffs(what.Changes)
	for _, p := range what.Paths {
		u.Locations = s.mapper.addLocation(u.Locations, p, 0)
	}
	if what.Reason != "" {
		u.Content = append(u.Content, textContent(what.Reason))
	}
	if u.RawInput = what.Input; u.RawInput == nil && what.Command != "" {
		u.RawInput = encode(map[string]string{"command": what.Command})
	}
	return u
}

// permissionOption is an answer to choose.
type permissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// approvalOptions are the answers to an approval.
func approvalOptions(ask *spool.Ask) []permissionOption {
	var out []permissionOption
	for _, o := range ask.Options {
		kind := o.Kind
		switch kind {
		case "allow_once", "allow_always", "reject_once", "reject_always":
		default:
			kind = "allow_once"
		}
		out = append(out, permissionOption{o.ID, cmp.Or(o.Label, o.ID), kind})
	}
	if len(out) == 0 {
		out = []permissionOption{{agent.Allow, "allow", "allow_once"}, {agent.Deny, "deny", "reject_once"}}
	}
	return out
}

// choose asks the client to choose. The choice is empty if its user did not.
func (s *session) choose(ctx context.Context, tool *toolUpdate, options []permissionOption) (string, error) {
	var answer struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	params := object{"sessionId": s.id, "toolCall": tool, "options": options, "_meta": tool.Meta}
	if s.version == 2 {
		params = permission2(s.id, tool, options)
	}
	err := s.client.conn.call(ctx, "session/request_permission", params, &answer)
	if err != nil || answer.Outcome.Outcome != "selected" {
		return "", err
	}
	if !slices.ContainsFunc(options, func(o permissionOption) bool { return o.ID == answer.Outcome.Option }) {
		return "", fmt.Errorf("the client chose %q, which is no option", answer.Outcome.Option)
	}
	return answer.Outcome.Option, nil
}

func (s *session) askPermission(ctx context.Context, tool *toolUpdate, options []permissionOption) (json.RawMessage, error) {
	choice, err := s.choose(ctx, tool, options)
	if err != nil || choice == "" {
		return nil, err
	}
	return encode(choice), nil
}

// askQuestions asks a client without forms one question after the other, if all have
// answers to choose from.
func (s *session) askQuestions(ctx context.Context, a *openAsk, tool *toolUpdate, questions []agent.Question) (json.RawMessage, error) {
	free := func(q agent.Question) bool { return len(q.Options) == 0 }
	if len(questions) == 0 || slices.ContainsFunc(questions, free) {
		s.pointTo(a)
		return nil, nil
	}
	d := agent.Decision{Choice: agent.Allow, Answers: make(map[string]string)}
	for _, q := range questions {
		one := *tool
		one.Title = cmp.Or(q.Text, tool.Title)
		options := append(approvalOptions(&spool.Ask{Options: q.Options}), permissionOption{agent.Deny, "do not answer", "reject_once"})
		choice, err := s.choose(ctx, &one, options)
		switch {
		case err != nil || choice == "":
			return nil, err
		case choice == agent.Deny:
			return encode(agent.Deny), nil
		}
		d.Answers[q.ID] = choice
	}
	return encode(d), nil
}

// pointTo says how to answer what this client cannot be asked.
func (s *session) pointTo(a *openAsk) {
	how := fmt.Sprintf("spool answer --ask %d %s ANSWER", a.seq, a.run)
	s.tell(a.run, fmt.Sprintf("⚠ The agent asks: %s\nAnswer with: %s\n", strings.TrimSpace(a.ask.Prompt), how))
}

// askField is the member of a form with the answer to an ask that has no questions.
const askField = "answer"

// askForm asks the client to have its user fill in a form.
func (s *session) askForm(ctx context.Context, a *openAsk, questions []agent.Question) (json.RawMessage, error) {
	plain := len(questions) == 0
	if plain {
		questions = []agent.Question{{ID: askField, Text: a.ask.Prompt, Options: a.ask.Options}}
	}
	properties := make(object)
	required := []string{}
	for _, q := range questions {
		properties[q.ID] = property(&q)
		required = append(required, q.ID)
	}
	var answer struct {
		Action  string         `json:"action"`
		Content map[string]any `json:"content"`
	}
	err := s.client.conn.call(ctx, "elicitation/create", object{"sessionId": s.id, "mode": "form", "message": cmp.Or(a.ask.Prompt, "The agent asks."),
		"requestedSchema": object{"type": "object", "properties": properties, "required": required},
		"_meta":           meta{place{Run: string(a.run), Seq: uint64(a.seq)}}}, &answer)
	if err != nil {
		return nil, err
	}
	switch answer.Action {
	case "accept":
	case "decline":
		return encode(agent.Deny), nil
	default:
		return nil, nil
	}
	d := agent.Decision{Choice: agent.Allow, Answers: make(map[string]string)}
	for _, q := range questions {
		text, ok := formText(answer.Content[q.ID])
		if !ok {
			return nil, fmt.Errorf("the form has no %q", q.ID)
		}
		d.Answers[q.ID] = text
	}
	if plain {
		return encode(d.Answers[askField]), nil
	}
	return encode(d), nil
}

// property describes the answer to a question.
func property(q *agent.Question) object {
	var choices []object
	for _, o := range q.Options {
		choices = append(choices, object{"const": o.ID, "title": cmp.Or(o.Label, o.ID)})
	}
	p := object{"type": "string", "title": cmp.Or(q.Header, q.Text), "description": q.Text}
	switch {
	case len(choices) > 0 && q.Multiple:
		p["type"], p["items"] = "array", object{"anyOf": choices}
	case len(choices) > 0:
		p["oneOf"] = choices
	}
	return p
}

// formText is a value of a form as text.
func formText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		var parts []string
		for _, one := range v {
			text, ok := one.(string)
			if !ok {
				return "", false
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, ", "), true
	case bool, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}
