package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/wire/zmtp"
)

// request is a cell that a front end wants to have executed.
type request struct {
	m    *message
	from *zmtp.Peer

	Code        string                     `json:"code"`
	Silent      bool                       `json:"silent"`
	Store       *bool                      `json:"store_history"`
	AllowStdin  bool                       `json:"allow_stdin"`
	StopOnError *bool                      `json:"stop_on_error"`
	Expressions map[string]json.RawMessage `json:"user_expressions"`
}

func (r *request) stored() bool { return !r.Silent && (r.Store == nil || *r.Store) }

func (r *request) stops() bool { return r.StopOnError == nil || *r.StopOnError }

// queue is the requests that wait, in order. They wait here and not in the run, because
// the failure of one takes those back that came after it.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	running bool
	wake    chan struct{} // holds one
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(r *request) {
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for a request. Without one it returns nil when a channel is closed.
func (q *queue) next(ctx context.Context, closed <-chan struct{}) *request {
	for {
		q.mu.Lock()
		if q.running = len(q.waiting) > 0; q.running {
			r := q.waiting[0]
			q.waiting = q.waiting[1:]
			q.mu.Unlock()
			return r
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-closed:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// drop takes back all that wait.
func (q *queue) drop() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	dropped := q.waiting
	q.waiting = nil
	return dropped
}

func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.running && len(q.waiting) == 0
}

// execute executes requests one after the other, until the run ends.
func (k *kernel) execute(ctx context.Context) {
	for {
		r := k.queue.next(ctx, k.book.over)
		if r == nil {
			return
		}
		if !k.run(ctx, r) && r.stops() {
			for _, r := range k.queue.drop() {
				k.say("status", r.m.raw, status("busy"))
				k.say("status", r.m.raw, status("idle"))
				k.reply(k.shell, r.from, r.m, "execute_reply", map[string]any{"status": "aborted"})
			}
		}
	}
}

// askedObject matches a cell that asks about an object: obj?, obj?? or ?obj.
var askedObject = lazyregexp.New(`^\s*(?:(\?\??)\s*([%\w.\[\]'"-]+)|([%\w.\[\]'"-]+)\s*(\?\??))\s*$`)

// run executes a request and reports whether it ended well.
func (k *kernel) run(ctx context.Context, r *request) bool {
	if c := k.pastCell(r); c != nil {
		return k.again(ctx, r, c)
	}
	if m := askedObject().FindStringSubmatch(r.Code); m != nil {
		return k.page(ctx, r, m[2]+m[3], m[1]+m[4] == "??")
	}
	k.own(r.m.header.ID, r)
	defer k.disown(r.m.header.ID)
	k.mu.Lock()
	k.headers[r.m.header.ID] = r.m.raw
	k.mu.Unlock()
	turn, err := k.Run.Exec(ctx, r.m.header.ID, spool.Cell{Code: r.Code, Silent: r.Silent, NoHistory: !r.stored(), Keep: r.stored()})
	if err != nil {
		return k.fail(r, err)
	}
	c, err := k.book.find(ctx, turn.Seq())
	if err != nil {
		return k.fail(r, err)
	}
	return k.finish(ctx, r, c)
}

// finish waits for a cell and answers the request.
func (k *kernel) finish(ctx context.Context, r *request, c *cell) bool {
	select {
	case <-c.done:
	case <-ctx.Done():
		return false
	}
	k.waitPublished(ctx, c.ended)
	return k.answer(r, c)
}

// answer answers a request with how its cell ended.
func (k *kernel) answer(r *request, c *cell) bool {
	content := map[string]any{"status": "ok", "execution_count": c.number, "payload": []any{}, "user_expressions": refused(r.Expressions)}
	if !r.stored() {
		content["execution_count"] = k.book.last()
	}
	if c.outcome != spool.TurnOK {
		content["status"] = "error"
		for name, value := range failure(c) {
			content[name] = value
		}
	}
	k.reply(k.shell, r.from, r.m, "execute_reply", content)
	return c.outcome == spool.TurnOK
}

// failure says why a cell did not end well.
func failure(c *cell) map[string]any {
	if x := c.exception; x != nil {
		return map[string]any{"ename": x.Name, "evalue": x.Message, "traceback": lines(x.Traceback)}
	}
	return ending(c.outcome, c.failure)
}

// ending is the error of a cell that ended without an exception.
func ending(outcome spool.TurnOutcome, why string) map[string]any {
	name := "Kernel" + strings.ToUpper(string(outcome[:1])) + string(outcome[1:])
	if outcome == spool.TurnInterrupted {
		name = "KeyboardInterrupt"
	}
	return map[string]any{"ename": name, "evalue": why, "traceback": []string{strings.TrimSuffix(name+": "+why, ": ")}}
}

// refused says of each expression that it was not evaluated.
func refused(expressions map[string]json.RawMessage) map[string]any {
	answers := make(map[string]any)
	for name := range expressions {
		answers[name] = map[string]any{"status": "error", "ename": "NotImplementedError", "evalue": "this kernel evaluates no user expressions", "traceback": []string{}}
	}
	return answers
}

// fail answers a request that could not be executed.
func (k *kernel) fail(r *request, err error) bool {
	content := map[string]any{"ename": "SpoolError", "evalue": err.Error(), "traceback": []string{"SpoolError: " + err.Error()}}
	k.say("status", r.m.raw, status("busy"))
	k.say("error", r.m.raw, content)
	k.say("status", r.m.raw, status("idle"))
	content["status"], content["execution_count"] = "error", k.book.last()
	k.reply(k.shell, r.from, r.m, "execute_reply", content)
	return false
}

// page answers a cell that asks about an object.
func (k *kernel) page(ctx context.Context, r *request, name string, source bool) bool {
	answer, err := k.inspect(ctx, inspect.Question{Op: inspect.Describe, Code: name, Source: source})
	if err != nil {
		return k.fail(r, err)
	}
	content := map[string]any{"status": "ok", "execution_count": k.book.last(), "payload": []any{}, "user_expressions": map[string]any{}}
	if answer.Text == "" {
		answer.Text = "Object `" + name + "` not found."
	}
	content["payload"] = []any{map[string]any{"source": "page", "data": map[string]string{"text/plain": answer.Text}, "start": 0}}
	k.say("status", r.m.raw, status("busy"))
	k.say("execute_input", r.m.raw, map[string]any{"code": r.Code, "execution_count": k.book.last()})
	k.say("status", r.m.raw, status("idle"))
	k.reply(k.shell, r.from, r.m, "execute_reply", content)
	return true
}

// pastCell returns the cell that a request repeats, if requests are answered from the
// log. The first that differs, or whose cell was cut off, ends that: it is executed, and
// so are all after it.
func (k *kernel) pastCell(r *request) *cell {
	if !k.resume || !r.stored() {
		return nil
	}
	c := k.book.stored(k.resumed)
	if c == nil || c.code != r.Code || !c.endedByItself() {
		k.resume = false
		return nil
	}
	k.resumed++
	return c
}

// again answers a request with a cell that another front end began.
func (k *kernel) again(ctx context.Context, r *request, c *cell) bool {
	k.own(c.id, r) // it may ask
	defer k.disown(c.id)
	if !k.replay(ctx, r, c) {
		return false
	}
	return k.finish(ctx, r, c)
}

// replay publishes what a cell did, and does, as the output of a request.
func (k *kernel) replay(ctx context.Context, r *request, cells ...*cell) bool {
	number := k.book.last()
	if len(cells) == 1 && cells[0].number > 0 {
		number = cells[0].number
	}
	if k.publish(ctx, "status", r.m.raw, status("busy")) != nil ||
		k.publish(ctx, "execute_input", r.m.raw, map[string]any{"code": r.Code, "execution_count": number}) != nil {
		return false
	}
	for _, c := range cells {
		raised := false
		for e, err := range k.Run.Turn(c.turn).Events(ctx) {
			if err != nil || k.show(ctx, &e, r.m.raw, &raised) != nil {
				return false
			}
		}
	}
	return k.publish(ctx, "status", r.m.raw, status("idle")) == nil
}

// outputs matches a cell that shows again what cells did.
var outputs = lazyregexp.New(`^\s*%outputs(?:[ \t]+(all|[0-9]+))?\s*$`)

// showOutputs shows again what cells did, also of one that runs, without waiting for
// others.
func (k *kernel) showOutputs(ctx context.Context, r *request, which string) {
	cells := k.book.named(which)
	if len(cells) == 0 {
		k.fail(r, fmt.Errorf("cell %s: %w", which, spool.ErrNotFound))
		return
	}
	if k.replay(ctx, r, cells...) {
		k.answer(r, &cell{outcome: spool.TurnOK, number: k.book.last()})
		k.remain()
	}
}

// named returns the last cell, the cell with a number, or all.
func (b *book) named(which string) []*cell {
	number, _ := strconv.Atoi(which) // the last one if there is none
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*cell
	for _, c := range b.cells {
		switch {
		case c.hidden:
		case which == "all", number > 0 && c.number == number:
			found = append(found, c)
		case which == "":
			found = []*cell{c}
		}
	}
	return found
}

// waitPublished waits until front ends were sent all up to an event, if there are any.
func (k *kernel) waitPublished(ctx context.Context, seq spool.Seq) {
	for k.iopub.Subscribers() > 0 {
		k.mu.Lock()
		if k.published >= seq {
			k.mu.Unlock()
			return
		}
		if k.progress == nil {
			k.progress = make(chan struct{})
		}
		progress := k.progress
		k.mu.Unlock()
		select {
		case <-progress:
		case <-time.After(leavePoll): // the last front end may have left
		case <-ctx.Done():
			return
		}
	}
}

// own says who waits for a cell.
func (k *kernel) own(id string, r *request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owners[id] = r
}

func (k *kernel) disown(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.owners, id)
}

func (k *kernel) owner(id string) *request {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.owners[id]
}
