package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/wire/zmtp"
	"github.com/spool-run/spool/python"
)

// receive takes a request on the shell or the control channel. What needs no cell is
// answered at once, also while a cell runs.
func (k *kernel) receive(ctx context.Context, s *zmtp.Socket, from *zmtp.Peer, frames zmtp.Message) {
	m, err := k.codec.decode(frames)
	if err != nil {
		k.Logger.Warn("a message was not taken", "error", err)
		return
	}
	if m.header.Type == "execute_request" {
		r := &request{m: m, from: from}
		if err := json.Unmarshal(m.content, r); err != nil {
			k.Logger.Warn("a request was not taken", "error", err)
			return
		}
		if which := outputs().FindStringSubmatch(r.Code); which != nil {
			k.work.Go(func() { k.showOutputs(ctx, r, which[1]) })
			return
		}
		k.queue.put(r)
		return
	}
	answer := k.answers()[m.header.Type]
	if answer == nil {
		k.Logger.Debug("a request of an unknown type", "type", m.header.Type)
		return
	}
	k.say("status", m.raw, status("busy"))
	content := answer(ctx, m)
	k.say("status", m.raw, status("idle"))
	k.remain()
	if content != nil {
		k.reply(s, from, m, strings.TrimSuffix(m.header.Type, "_request")+"_reply", content)
	}
	if m.header.Type == "shutdown_request" {
		k.say("shutdown_reply", m.raw, content)
		k.end.Do(func() { close(k.over) })
	}
}

// answers are the requests that need no cell, and what answers them.
func (k *kernel) answers() map[string]func(context.Context, *message) any {
	return map[string]func(context.Context, *message) any{
		"kernel_info_request": k.kernelInfo,
		"complete_request":    k.complete,
		"inspect_request":     k.describe,
		"is_complete_request": k.isComplete,
		"history_request":     k.history,
		"interrupt_request":   k.interrupt,
		"shutdown_request":    k.shutdown,
		"connect_request":     k.connect,
		"comm_info_request": func(context.Context, *message) any {
			return map[string]any{"status": "ok", "comms": map[string]any{}}
		},
		"comm_open": k.refuseComm,
	}
}

func (k *kernel) kernelInfo(ctx context.Context, _ *message) any {
	language := map[string]any{
		"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py", "pygments_lexer": "ipython3",
		"codemirror_mode": map[string]any{"name": "ipython", "version": 3}, "nbconvert_exporter": "python",
	}
	banner := "Python"
	var d python.Details
	if info, err := k.Run.Info(ctx); err == nil && json.Unmarshal(info.Details, &d) == nil && d.Version != "" {
		language["version"] = d.Version
		banner += " " + d.Version
	}
	return map[string]any{
		"status": "ok", "protocol_version": protocolVersion, "implementation": "spool", "implementation_version": k.Version,
		"language_info": language, "banner": banner + " in run " + string(k.Run.ID()) + " of Spool", "help_links": []any{}, "debugger": false,
	}
}

func (k *kernel) connect(context.Context, *message) any {
	c := k.Connection
	return map[string]any{"status": "ok", "shell_port": c.Shell, "iopub_port": c.IOPub, "stdin_port": c.Stdin, "hb_port": c.Heartbeat, "control_port": c.Control}
}

// refuseComm closes a comm: there is nothing in the kernel that it could talk to.
func (k *kernel) refuseComm(_ context.Context, m *message) any {
	var c struct {
		ID string `json:"comm_id"`
	}
	if json.Unmarshal(m.content, &c) == nil {
		k.say("comm_close", m.raw, map[string]any{"comm_id": c.ID, "data": map[string]any{}})
	}
	return nil
}

// inspect asks the interpreter.
func (k *kernel) inspect(ctx context.Context, q inspect.Question) (answer inspect.Answer, err error) {
	inspector, ok := k.Backend.(spool.Inspector)
	if !ok {
		return answer, spool.ErrUnsupported
	}
	data, err := json.Marshal(q)
	if err != nil {
		return answer, fmt.Errorf("encode the question: %w", err)
	}
	reply, err := inspector.Inspect(ctx, k.Run.ID(), data)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(reply, &answer)
}

// problem is the answer to a request that failed.
func problem(err error) any {
	return map[string]any{"status": "error", "ename": "SpoolError", "evalue": err.Error(), "traceback": []string{}}
}

// place is code with a cursor.
type place struct {
	Code   string `json:"code"`
	Cursor *int   `json:"cursor_pos"`
	Detail int    `json:"detail_level"`
}

func decodePlace(m *message) (p place, cursor int, err error) {
	if err = json.Unmarshal(m.content, &p); err != nil {
		return p, 0, err
	}
	if cursor = len([]rune(p.Code)); p.Cursor != nil {
		cursor = min(max(*p.Cursor, 0), cursor)
	}
	return p, cursor, nil
}

func (k *kernel) complete(ctx context.Context, m *message) any {
	p, cursor, err := decodePlace(m)
	if err != nil {
		return problem(err)
	}
	matches, start := []string{}, cursor
	// While a cell runs there are no completions.
	a, err := k.inspect(ctx, inspect.Question{Op: inspect.Complete, Code: p.Code, Cursor: cursor})
	if err == nil {
		matches, start = append(matches, a.Matches...), a.Start
	} else if !errors.Is(err, spool.ErrBusy) {
		return problem(err)
	}
	return map[string]any{"status": "ok", "matches": matches, "cursor_start": start, "cursor_end": cursor, "metadata": map[string]any{}}
}

func (k *kernel) describe(ctx context.Context, m *message) any {
	p, cursor, err := decodePlace(m)
	if err != nil {
		return problem(err)
	}
	content := map[string]any{"status": "ok", "found": false, "data": map[string]any{}, "metadata": map[string]any{}}
	name := nameAt([]rune(p.Code), cursor)
	if name == "" {
		return content
	}
	a, err := k.inspect(ctx, inspect.Question{Op: inspect.Describe, Code: name, Source: p.Detail > 0})
	if err != nil && !errors.Is(err, spool.ErrBusy) {
		return problem(err)
	}
	if a.Text != "" {
		content["found"], content["data"] = true, map[string]any{"text/plain": a.Text}
	}
	return content
}

// nameAt returns the dotted name at a cursor, or that of the function whose arguments
// begin there.
func nameAt(code []rune, cursor int) string {
	part := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	end := cursor
	for end > 0 && code[end-1] == '(' && (end == len(code) || !part(code[end])) {
		end--
	}
	for end < len(code) && part(code[end]) {
		end++
	}
	begin := min(cursor, end)
	for begin > 0 && (part(code[begin-1]) || code[begin-1] == '.') {
		begin--
	}
	return strings.Trim(string(code[begin:end]), ".")
}

func (k *kernel) isComplete(ctx context.Context, m *message) any {
	p, _, err := decodePlace(m)
	if err != nil {
		return problem(err)
	}
	a, err := k.inspect(ctx, inspect.Question{Op: inspect.Check, Code: p.Code})
	if err != nil || a.Status == "" {
		return map[string]any{"status": "unknown"}
	}
	content := map[string]any{"status": a.Status}
	if a.Status == "incomplete" {
		content["indent"] = a.Indent
	}
	return content
}

func (k *kernel) interrupt(ctx context.Context, _ *message) any {
	if c := k.book.running(); c != nil {
		if err := k.Run.Turn(c.turn).Interrupt(ctx, 0); err != nil && !errors.Is(err, spool.ErrEnded) {
			return problem(err)
		}
	}
	return map[string]any{"status": "ok"}
}

func (k *kernel) shutdown(ctx context.Context, m *message) any {
	var c struct {
		Restart bool `json:"restart"`
	}
	_ = json.Unmarshal(m.content, &c) // it is no restart then
	k.shutDown(ctx)
	return map[string]any{"status": "ok", "restart": c.Restart}
}

// historySession is the number that the history has for the cells of the run.
const historySession = 1

func (k *kernel) history(_ context.Context, m *message) any {
	var q struct {
		Output  bool   `json:"output"`
		Access  string `json:"hist_access_type"`
		Start   int    `json:"start"`
		Stop    *int   `json:"stop"`
		N       *int   `json:"n"`
		Pattern string `json:"pattern"`
		Unique  bool   `json:"unique"`
	}
	if err := json.Unmarshal(m.content, &q); err != nil {
		return problem(err)
	}
	var found []cell
	pattern := glob(q.Pattern)
	for _, c := range k.book.shown() {
		switch q.Access {
		case "range":
			if c.number < q.Start || q.Stop != nil && c.number >= *q.Stop {
				continue
			}
		case "search":
			if !pattern.MatchString(c.code) {
				continue
			}
			if q.Unique { // the last of equal cells stays
				for i := range found {
					if found[i].code == c.code {
						found = append(found[:i], found[i+1:]...)
						break
					}
				}
			}
		}
		found = append(found, c)
	}
	if q.N != nil && q.Access != "range" {
		found = found[max(0, len(found)-max(0, *q.N)):]
	}
	list := make([][3]any, 0, len(found))
	for _, c := range found {
		entry := [3]any{historySession, c.number, c.code}
		if q.Output {
			output := any(nil)
			if c.result != "" {
				output = c.result
			}
			entry[2] = [2]any{c.code, output}
		}
		list = append(list, entry)
	}
	return map[string]any{"status": "ok", "history": list}
}

// glob returns what matches the same as a pattern with * and ?.
func glob(pattern string) *regexp.Regexp {
	if pattern == "" {
		pattern = "*"
	}
	text := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + text + "$")
}

// ask puts an ask of a cell to the front end that waits for the cell. If nobody does, the
// ask stays open for others.
func (k *kernel) ask(ctx context.Context, e *spool.Event, c *cell) {
	var a spool.Ask
	r := k.owner(c.id)
	if r == nil || json.Unmarshal(e.Data, &a) != nil || a.Kind != spool.AskInput || !e.OpensAsk() {
		return
	}
	if !r.AllowStdin {
		refusal := spool.AnswerError{Code: "EOF", Message: "input() was called, but the front end does not take input"}
		k.send(ctx, spool.Answer{Ask: e.Seq, By: "jupyter", Error: &refusal}, false)
		return
	}
	m, err := k.codec.encode("input_request", r.m.raw, map[string]any{"prompt": a.Prompt, "password": a.Secret})
	if err != nil {
		k.Logger.Error("encode a question", "error", err)
		return
	}
	k.mu.Lock()
	k.asked[r.from.Identity] = question{e.Seq, a.Secret}
	k.mu.Unlock()
	k.stdin.Send(r.from.Identity, m)
}

// input takes the answer of a front end to a question.
func (k *kernel) input(ctx context.Context, from *zmtp.Peer, frames zmtp.Message) {
	m, err := k.codec.decode(frames)
	var reply struct {
		Value string `json:"value"`
	}
	if err == nil && m.header.Type == "input_reply" {
		err = json.Unmarshal(m.content, &reply)
	}
	k.mu.Lock()
	q, ok := k.asked[from.Identity]
	delete(k.asked, from.Identity)
	k.mu.Unlock()
	if err != nil || !ok {
		k.Logger.Warn("an answer was not taken", "error", err)
		return
	}
	data, err := json.Marshal(reply.Value)
	if err != nil {
		return // a string always encodes
	}
	k.send(ctx, spool.Answer{Ask: q.ask, By: "jupyter", Data: data}, q.secret)
}

// send answers an ask, which somebody else may have done before.
func (k *kernel) send(ctx context.Context, a spool.Answer, secret bool) {
	if err := k.Run.Answer(ctx, a, secret); err != nil && !errors.Is(err, spool.ErrNotAsked) && !errors.Is(err, spool.ErrEnded) {
		k.Logger.Error("answer the cell", "error", err)
	}
}
