package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Timing of a codex client.
const (
	retryEvery   = 100 * time.Millisecond
	dialFor      = 10 * time.Second
	logLossAfter = 3 * time.Second // wait this long before a reconnect that fails is logged
)

// codex is a client of the codex dialect that behaves as codex does: it has one
// session, and after a lost connection it resumes the session and reads what it
// missed of every live process.
type codex struct {
	trial *trial
	name  string
	index int
	wire  *netcut.Proxy
	http  *http.Client

	mu      sync.Mutex
	session string
	conn    *codexConn    // nil until it has caught up
	changed chan struct{} // closed and replaced when conn changes
	runs    map[string]*run
}

// codexConn is one connection.
type codexConn struct {
	client *codex
	rpc    *rpc.Conn
}

func newCodex(t *trial, index int) (*codex, error) {
	wire, err := netcut.NewProxy(t.addr)
	if err != nil {
		return nil, err
	}
	return &codex{
		trial: t, index: index, name: fmt.Sprintf("codex client %d", index), wire: wire,
		http: &http.Client{Transport: &http.Transport{DialContext: rpc.Dial, DisableKeepAlives: true}}, changed: make(chan struct{}), runs: make(map[string]*run),
	}, nil
}

func (c *codex) proxy() *netcut.Proxy { return c.wire }
func (c *codex) label() string        { return c.name }

// serve keeps the client connected until ctx ends.
func (c *codex) serve(ctx context.Context) {
	lost := time.Now()
	for ctx.Err() == nil {
		conn, err := c.connect(ctx)
		if err != nil {
			if away := time.Since(lost); away > logLossAfter {
				c.trial.logf("%s: away for %.1fs: %v", c.name, away.Seconds(), err)
			}
			_ = pause.For(ctx, retryEvery)
			continue
		}
		c.use(conn)
		select {
		case <-conn.rpc.Done():
		case <-ctx.Done():
			_ = conn.rpc.Close()
		}
		c.use(nil)
		lost = time.Now()
	}
}

func (c *codex) use(conn *codexConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	close(c.changed)
	c.changed = make(chan struct{})
}

// current waits for a connection that has caught up.
func (c *codex) current(ctx context.Context) (*codexConn, error) {
	for {
		c.mu.Lock()
		conn, changed := c.conn, c.changed
		c.mu.Unlock()
		if conn != nil {
			select {
			case <-conn.rpc.Done():
			default:
				return conn, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *codex) settled(ctx context.Context) bool {
	_, err := c.current(ctx)
	return err == nil
}

// connect dials, resumes the session and catches up.
func (c *codex) connect(ctx context.Context) (*codexConn, error) {
	dialing, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	header := http.Header{}
	if t := c.trial.opts.Token; t != "" {
		header.Set("Authorization", "Bearer "+t)
	}
	ws, _, err := websocket.Dial(dialing, "ws://"+c.wire.Addr(), &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	conn := &codexConn{client: c, rpc: rpc.NewConn(rpc.WebSocket(ws, c.name))}
	for _, r := range c.live() {
		r.mu.Lock()
		r.in.reconnect()
		r.mu.Unlock()
	}
	c.trial.wg.Go(func() { _ = conn.rpc.Serve(ctx, conn) }) // the callers see the end of the connection
	if err := c.catchUp(dialing, conn); err != nil {
		return nil, errors.Join(err, conn.rpc.Close())
	}
	return conn, nil
}

func (c *codex) live() []*run {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*run, 0, len(c.runs))
	for _, r := range c.runs {
		all = append(all, r)
	}
	return all
}

func (c *codex) catchUp(ctx context.Context, conn *codexConn) error {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	params := map[string]any{"clientName": "spool-torture", "resumeSessionId": nil}
	if session != "" {
		params["resumeSessionId"] = session
	}
	var answer struct {
		SessionID string `json:"sessionId"`
	}
	err := conn.rpc.Call(ctx, "initialize", params, &answer)
	var refused *rpc.Error
	if errors.As(err, &refused) && refused.Code == rpc.CodeInvalidRequest && session != "" {
		c.forget(refused)
	}
	if err != nil {
		return err
	}
	if session != "" && answer.SessionID != session {
		c.trial.violate(Violation{Kind: Invented, Via: c.name, Detail: fmt.Sprintf("session %s was resumed as %s", session, answer.SessionID)})
	}
	if session != "" {
		c.trial.resumes.Add(1)
	}
	c.mu.Lock()
	c.session = answer.SessionID
	c.mu.Unlock()
	if err := conn.rpc.Notify("initialized", struct{}{}); err != nil {
		return err
	}
	for _, r := range c.live() {
		if err := c.recover(ctx, conn, r); err != nil {
			return err
		}
	}
	return nil
}

// forget gives the session up: the server does not know it.
func (c *codex) forget(cause error) {
	c.mu.Lock()
	c.session = ""
	c.mu.Unlock()
	for _, r := range c.live() {
		r.mu.Lock()
		asked, begun := r.asked != nil, r.begun || r.in.hist.last > 0
		r.absent = asked
		r.mu.Unlock()
		if begun {
			r.violate(Lost, "the session is lost: %v", cause)
		}
	}
}

// recover reads the events of a run that the client missed without a
// connection.
func (c *codex) recover(ctx context.Context, conn *codexConn, r *run) error {
	r.mu.Lock()
	skip := r.asked == nil || r.asked == conn || r.in.hist.closed && (r.in.hist.exited || r.in.failure != "")
	r.mu.Unlock()
	if skip {
		return nil
	}
	return c.read(ctx, conn, r)
}

// read reads all missing events.
func (c *codex) read(ctx context.Context, conn *codexConn, r *run) error {
	for gap := true; gap; {
		after := r.last()
		var res readResult
		err := conn.rpc.Call(ctx, "process/read", map[string]any{"processId": r.id, "afterSeq": after, "maxBytes": nil, "waitMs": 0}, &res)
		var refused *rpc.Error
		if errors.As(err, &refused) {
			if strings.Contains(refused.Message, "is starting") {
				return nil
			}
			r.mu.Lock()
			begun := r.begun || r.in.hist.last > 0
			r.absent = true
			r.mu.Unlock()
			if begun && !r.forgettable() {
				r.violate(Lost, "process/read after event %d: %v", after, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		r.take(func(in *inbox) { gap = in.read(after, &res) })
	}
	return nil
}

// Request implements [rpc.Handler]. The server never sends requests.
func (c *codexConn) Request(r *rpc.Request) {
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method))
}

// Malformed implements [rpc.Handler].
func (c *codexConn) Malformed(err error) error {
	c.client.trial.violate(Violation{Kind: Corrupted, Via: c.client.name, Detail: err.Error()})
	return err
}

// Notification implements [rpc.Handler].
func (c *codexConn) Notification(method string, params json.RawMessage) error {
	var kind spool.Kind
	switch method {
	case "process/output":
		kind = spool.KindOutput
	case "process/exited":
		kind = spool.KindExited
	case "process/closed":
		kind = spool.KindClosed
	default:
		return nil
	}
	var p struct {
		ProcessID string       `json:"processId"`
		Seq       uint64       `json:"seq"`
		Stream    spool.Stream `json:"stream"`
		Chunk     []byte       `json:"chunk"`
		ExitCode  int          `json:"exitCode"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		c.client.trial.violate(Violation{Kind: Corrupted, Via: c.client.name, Detail: fmt.Sprintf("%s: %v", method, err)})
		return err
	}
	c.client.mu.Lock()
	r := c.client.runs[p.ProcessID]
	c.client.mu.Unlock()
	if r == nil {
		return nil // a run that is finished
	}
	r.take(func(in *inbox) {
		in.push(event{seq: p.Seq, kind: kind, stream: p.Stream, bytes: p.Chunk, code: p.ExitCode})
	})
	return nil
}

// call sends a request on a connection that has caught up. A lost connection is
// [rpc.ErrConnClosed].
func (c *codex) call(ctx context.Context, method string, params, result any) error {
	conn, err := c.current(ctx)
	if err != nil {
		return err
	}
	return conn.rpc.Call(ctx, method, params, result)
}

// callUntilAnswered repeats an idempotent request until it is answered.
func (c *codex) callUntilAnswered(ctx context.Context, method string, params, result any) error {
	for {
		err := c.call(ctx, method, params, result)
		if !errors.Is(err, rpc.ErrConnClosed) {
			return err
		}
	}
}

// runWorker runs one worker on the server, from the start to the replay.
func (c *codex) runWorker(ctx context.Context, r *run) {
	r.id = fmt.Sprintf("%s-%d", c.trial.mark, r.plan.Run)
	c.mu.Lock()
	c.runs[r.id] = r
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.runs, r.id)
		c.mu.Unlock()
	}()
	if !c.start(ctx, r) {
		return
	}
	if err := c.exercise(ctx, r); err != nil {
		if ctx.Err() == nil {
			r.violate(NeverEnded, "%v; %s", err, c.silence(ctx, r))
			_ = c.callUntilAnswered(ctx, "process/terminate", map[string]any{"processId": r.id}, nil) // the history shows the result
		}
		return
	}
	r.mu.Lock()
	untold := !r.in.hist.exited && r.in.failure == ""
	r.mu.Unlock()
	if untold { // closed without an exit: a read gives the reason
		c.again(ctx, r)
	}
	c.replay(ctx, r)
	var gone struct {
		Running bool `json:"running"`
	}
	if err := c.callUntilAnswered(ctx, "process/terminate", map[string]any{"processId": r.id}, &gone); err == nil && gone.Running {
		r.violate(WrongExit, "process/terminate reports a closed process as running")
	}
}

// silence describes a run without news.
func (c *codex) silence(ctx context.Context, r *run) string {
	var res readResult
	err := c.callUntilAnswered(ctx, "process/read", map[string]any{"processId": r.id, "afterSeq": r.last(), "maxBytes": nil, "waitMs": 0}, &res)
	r.mu.Lock()
	defer r.mu.Unlock()
	what := fmt.Sprintf("the last event is %d, pushed on this connection were %d up to %d, %d wait for those between", r.in.hist.last, len(r.in.pushed), r.in.highest, len(r.in.pending))
	if err != nil {
		return fmt.Sprintf("%s; process/read: %v", what, err)
	}
	return fmt.Sprintf("%s; process/read has %d chunks more, next %d, exited %v, closed %v", what, len(res.Chunks), res.NextSeq, res.Exited, res.Closed)
}

// again reads after the end until a read succeeds.
func (c *codex) again(ctx context.Context, r *run) {
	for {
		conn, err := c.current(ctx)
		if err != nil {
			return
		}
		if err := c.read(ctx, conn, r); !errors.Is(err, rpc.ErrConnClosed) {
			return
		}
	}
}

// start starts the worker. It does not repeat a start whose answer was lost:
// the next connection finds the process or not.
func (c *codex) start(ctx context.Context, r *run) bool {
	conn, err := c.current(ctx)
	if err != nil {
		return false
	}
	r.mu.Lock()
	r.asked = conn
	r.mu.Unlock()
	err = conn.rpc.Call(ctx, "process/start", map[string]any{
		"processId": r.id, "argv": r.plan.argv(c.trial.worker), "cwd": (&url.URL{Scheme: "file", Path: c.trial.dir}).String(),
		"env": workerEnv, "tty": r.plan.TTY, "pipeStdin": r.plan.Shape == Echo,
	}, nil)
	switch {
	case err == nil:
		r.mu.Lock()
		r.begun = true
		r.mu.Unlock()
		return true
	case ctx.Err() != nil:
		return false
	case !errors.Is(err, rpc.ErrConnClosed):
		c.trial.refused(ctx, r, err)
		return false
	}
	if _, err := c.current(ctx); err != nil {
		return false
	}
	r.mu.Lock()
	absent := r.absent
	r.mu.Unlock()
	if absent {
		c.trial.lostStarts.Add(1)
		_ = c.callUntilAnswered(ctx, "process/terminate", map[string]any{"processId": r.id}, nil) // as codex does
		return false
	}
	return true
}

// workerEnv makes each write of a worker one system call, and workers small.
var workerEnv = map[string]string{"GODEBUG": "asyncpreemptoff=1", "GOMAXPROCS": "1", "GORACE": "atexit_sleep_ms=0"}

// exercise sends the input or the kill that the shape of the worker needs,
// until the worker is closed.
func (c *codex) exercise(ctx context.Context, r *run) error {
	patience := c.trial.opts.Hang
	switch r.plan.Shape {
	case Echo:
		if err := r.wait(ctx, patience, func(h *history) bool { return h.last > 0 }); err != nil {
			return err
		}
		if err := c.write(ctx, r); err != nil {
			return err
		}
	case Endless:
		if err := r.wait(ctx, patience, r.plan.enough); err != nil {
			return err
		}
		r.killed.Store(true)
		if err := c.callUntilAnswered(ctx, "process/terminate", map[string]any{"processId": r.id}, nil); err != nil {
			return fmt.Errorf("process/terminate: %w", err)
		}
	}
	return r.wait(ctx, patience, nil)
}

// enough reports whether to end an endless worker.
func (p *Plan) enough(h *history) bool {
	return h.exited || h.last >= 10+p.Seed%50
}

// write writes all inputs in order and repeats each until it is acknowledged.
func (c *codex) write(ctx context.Context, r *run) error {
	for n := uint32(1); int(n) <= r.plan.Records; n++ {
		var answer struct {
			Status string `json:"status"`
		}
		err := c.callUntilAnswered(ctx, "process/write", map[string]any{"processId": r.id, "chunk": r.plan.input(n), "writeId": fmt.Sprint(n)}, &answer)
		if err != nil {
			if c.trial.excused(r) || r.killed.Load() {
				return nil
			}
			return fmt.Errorf("process/write %d: %w", n, err)
		}
		if answer.Status != "accepted" {
			return nil // the checks at the end decide whether that was correct
		}
		r.mu.Lock()
		r.acked = n
		r.mu.Unlock()
	}
	return nil
}

// replayPage is the size of a page of a replay. It is small enough to be read
// between two cuts; otherwise the replay would start over until the server
// forgets the run.
const replayPage = 1 << 20

// replay reads the whole log again in pages, until a page is empty.
func (c *codex) replay(ctx context.Context, r *run) {
	var all readResult
	for after, more := uint64(0), true; more; after = all.NextSeq - 1 {
		var res readResult
		err := c.callUntilAnswered(ctx, "process/read", map[string]any{"processId": r.id, "afterSeq": after, "maxBytes": replayPage, "waitMs": 0}, &res)
		if err != nil {
			switch {
			case ctx.Err() != nil:
			case r.forgettable(): // the audit at the end reads it again
				c.trial.logf("%s: %s: forgotten before it was read again", c.name, r.id)
			default:
				r.violate(BadReplay, "process/read after event %d: %v", after, err)
			}
			return
		}
		more = len(res.Chunks) > 0
		res.Chunks = append(all.Chunks, res.Chunks...)
		all = res
	}
	again := newInbox(newHistory(&r.plan))
	again.read(0, &all)
	r.compare(again.hist, "process/read from the beginning")
}

// compare compares a replay with the events seen live.
func (r *run) compare(again *history, how string) {
	r.mu.Lock()
	live := r.in.hist
	same := live.sum() == again.sum()
	detail := fmt.Sprintf("%s has %d events and %d bytes, exited %v with %d, closed %v; live there were %d and %d, exited %v with %d", how,
		again.last, again.bytes, again.exited, again.code, again.closed, live.last, live.bytes, live.exited, live.code)
	r.mu.Unlock()
	if !same {
		r.violate(BadReplay, "%s", detail)
	}
}
