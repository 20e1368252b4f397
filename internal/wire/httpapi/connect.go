package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// connect turns the request into a WebSocket that speaks the run/* protocol.
func (c *call) connect() error {
	if c.server.rpc == nil {
		return fmt.Errorf("run/* over WebSocket: %w by this server", spool.ErrUnsupported)
	}
	if err := c.wantsWebSocket(); err != nil {
		return err
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	socket := &socketCall{call: c}
	defer socket.end()
	c.server.rpc.ServeRuns(c.w, c.r.WithContext(c.ctx), c.subject, socket.extend)
	return nil
}

// socketCall is what this package adds to a connection that speaks run/*.
type socketCall struct {
	*call
	notify  func(method string, params any)
	visitor *visitor // nil before the connection is open
}

// socketMethods are operations of the table that are methods, too: run/lines takes the
// parameters of /v1/runs/{run}/lines as members, and run in it.
var socketMethods = map[string]string{"run/screen": "getScreen", "run/index": "getIndex", "run/lines": "getLines"}

// extend returns what the connection has beside run/*.
func (s *socketCall) extend(notify func(method string, params any)) runproto.Extension {
	s.notify = notify
	s.visitor = s.server.presence.visit(s.call, notify)
	x := runproto.Extension{
		Methods: map[string]func(context.Context, json.RawMessage) (any, error){
			"run/answer": s.answerMethod, "run/presence": s.presenceMethod, "session/renew": s.renewMethod,
		},
		Watch: s.watchAsks,
	}
	for method, name := range socketMethods {
		i := slices.IndexFunc(operations(), func(op operation) bool { return op.name == name })
		op := &operations()[i]
		x.Methods[method] = func(ctx context.Context, params json.RawMessage) (any, error) { return s.operate(ctx, op, params) }
	}
	if s.subject.Session() != "" && s.server.signIn != nil {
		s.server.wg.Go(s.warn)
	}
	return x
}

func (s *socketCall) end() {
	if s.visitor != nil {
		s.visitor.leave()
	}
}

// operate does an operation that answers with JSON.
func (s *socketCall) operate(ctx context.Context, op *operation, params json.RawMessage) (any, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(params, &members); err != nil {
		return nil, fmt.Errorf("%w: the params must be an object", spool.ErrInvalid)
	}
	query, run := url.Values{}, ""
	for name, value := range members {
		var v any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("%w: the member %.100q cannot be read", spool.ErrInvalid, name)
		}
		list, many := v.([]any)
		if !many {
			list = []any{v}
		}
		for _, one := range list {
			text := fmt.Sprint(one)
			if name == "run" {
				run = text
			} else {
				query.Add(name, text)
			}
		}
	}
	answer := &heldAnswer{header: make(http.Header)}
	sub := *s.call
	sub.op, sub.w, sub.patient, sub.ctx = op, answer, nil, ctx
	sub.r = s.r.Clone(ctx)
	sub.r.Method, sub.r.Header, sub.r.URL = op.method, http.Header{}, &url.URL{Path: strings.ReplaceAll(op.pattern, "{run}", url.PathEscape(run)), RawQuery: query.Encode()}
	sub.r.SetPathValue("run", run)
	if err := sub.admit(); err != nil {
		return nil, methodError(err)
	}
	if err := sub.checkQuery(); err != nil {
		return nil, methodError(err)
	}
	if err := op.serve(&sub); err != nil {
		return nil, methodError(err)
	}
	return json.RawMessage(bytes.TrimSpace(answer.body)), nil
}

// heldAnswer keeps an answer.
type heldAnswer struct {
	header http.Header
	body   []byte
}

func (a *heldAnswer) Header() http.Header { return a.header }
func (a *heldAnswer) WriteHeader(int)     {}
func (a *heldAnswer) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

// methodError makes an error that the run/* protocol knows.
func methodError(err error) error {
	var p *Problem
	if !errors.As(err, &p) {
		return err
	}
	for code, known := range map[string]error{
		"not_found": spool.ErrNotFound, "forbidden": spool.ErrDenied, "rate": spool.ErrBusy, "not_asked": spool.ErrNotAsked, "not_retyped": spool.ErrNotRetyped, "unsupported": spool.ErrUnsupported,
	} {
		if p.Code == code {
			return fmt.Errorf("%w: %s", known, p.Detail)
		}
	}
	return fmt.Errorf("%w: %s", spool.ErrInvalid, p.Detail)
}

// MethodAnswer is the params of run/answer: an answer to an ask of a run.
type MethodAnswer struct {
	Run spool.RunID `json:"run"`
	Ask spool.Seq   `json:"ask"`
	AnswerRequest
}

func (s *socketCall) answerMethod(ctx context.Context, params json.RawMessage) (any, error) {
	var a MethodAnswer
	if err := json.Unmarshal(params, &a); err != nil || a.Run == "" || a.Ask == 0 {
		return nil, fmt.Errorf("%w: an answer needs the members run and ask", spool.ErrInvalid)
	}
	body, err := json.Marshal(a.AnswerRequest)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	i := slices.IndexFunc(operations(), func(op operation) bool { return op.name == "answerAsk" })
	answer := &heldAnswer{header: make(http.Header)}
	sub := *s.call
	sub.op, sub.w, sub.patient, sub.ctx = &operations()[i], answer, nil, ctx
	sub.r = s.r.Clone(ctx)
	sub.r.Header, sub.r.Body = http.Header{"Content-Type": {"application/json"}}, http.NoBody
	sub.r.SetPathValue("run", string(a.Run))
	sub.r.SetPathValue("seq", fmt.Sprint(uint64(a.Ask)))
	sub.given = body
	if err := sub.admit(); err != nil {
		return nil, methodError(err)
	}
	return struct{}{}, methodError(sub.answer())
}

// AskChange is the params of asks/changed: all open asks of the runs of a watch.
type AskChange struct {
	Follow uint32 `json:"follow"`
	*AskList
}

// watchAsks tells the connection of asks, after each change of a watch.
func (s *socketCall) watchAsks(ctx context.Context, follow uint32) func(*spool.Info) {
	c := *s.call
	c.ctx = ctx
	asks, synced := newAskList(&c, nil, nil), false
	return func(info *spool.Info) {
		if info.ID == "" {
			asks.force, synced = true, true
		} else {
			asks.note(info)
		}
		if !synced || !asks.changed() || asks.load() != nil { // what cannot be read now is read with the next change
			return
		}
		s.notify("asks/changed", AskChange{follow, asks.list()})
	}
}

// SessionEnd is the params of session/expiring and the result of session/renew.
type SessionEnd struct {
	Expires time.Time `json:"expires"`
}

// warnBefore is how long before the end of a session its page is told.
const warnBefore = 5 * time.Minute

// warn tells the page that its session ends soon, as often as that is so.
func (s *socketCall) warn() {
	for told := (time.Time{}); ; {
		end := s.server.signIn.Sessions.Expires(s.subject)
		if end.IsZero() {
			return
		}
		wait := time.Until(end) - warnBefore
		if wait <= 0 {
			if !told.Equal(end) {
				told = end
				s.notify("session/expiring", SessionEnd{end})
			}
			wait = warnBefore / 10
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (s *socketCall) renewMethod(context.Context, json.RawMessage) (any, error) {
	if s.server.signIn == nil || s.subject.Session() == "" {
		return nil, fmt.Errorf("renew the session: %w: only pages have one", spool.ErrUnsupported)
	}
	end, err := s.server.signIn.Sessions.Renew(s.subject)
	return SessionEnd{end}, err
}

func (s *socketCall) presenceMethod(ctx context.Context, params json.RawMessage) (any, error) {
	var p PresenceRequest
	if err := json.Unmarshal(params, &p); err != nil || p.Run == "" {
		return nil, fmt.Errorf("%w: presence needs the member run", spool.ErrInvalid)
	}
	if err := checkRole(s.subject, p.Role); err != nil {
		return nil, err
	}
	if _, err := s.backend.Stat(ctx, p.Run); err != nil {
		return nil, err
	}
	return s.visitor.at(p.Run, p.Role)
}
