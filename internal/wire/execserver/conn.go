package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/contain"
	"github.com/spool-run/spool/internal/gopool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// conn is one connection: the state of its handshake, its session, and the
// resources that end with it.
type conn struct {
	server  *Server
	subject *access.Subject
	backend spool.Backend // what the subject may use
	rpc     *rpc.Conn
	ctx     context.Context         // ends with the connection
	end     context.CancelCauseFunc // of ctx, and so of the connection
	lanes   *rpc.Lanes
	urgent  *rpc.Lanes // control requests, which never wait for other requests

	executing atomic.Int32 // requests that wait for the end of the run they start

	files  *files
	http   *httpRequests
	binary bool // events of run/follow go out as binary records
	more   runproto.Extension

	network   *watchedConn  // nil on standard input and output
	requests  *rpc.Account  // requests under way
	account   *rpc.Account  // answers and events that are made or sent
	turn      chan struct{} // full while a large answer is made or sent
	controls  atomic.Int64  // control requests under way
	handshake *time.Timer   // runs until the client has sent initialized

	followers gopool.Pool

	mu      sync.Mutex
	session *session // nil before initialize
	ready   bool     // the client sent initialized
	follows map[uint32]*follow
	held    map[*process]*resumption // processes whose events wait for a read
	pending map[*pendingStart]struct{}
}

// extension makes what a connection has beside what this package serves. It may send
// notifications.
type extension = func(notify func(method string, params any)) runproto.Extension

// serve handles one connection until it ends. Deadlines apply to a connection
// over the network; standard input and output belong to the parent process,
// which may pause.
func (s *Server) serve(ctx context.Context, t rpc.Transport, network *watchedConn, binary bool, a *admission, extend extension) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// Ending the context must unblock a connection that waits in a read.
	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	defer stop()

	l := s.opts.Limits
	c := &conn{
		server: s, subject: a.subject, backend: a.backend, rpc: rpc.NewConn(t), ctx: ctx, end: end, network: network,
		lanes: rpc.NewLanes(l.Requests, s.inFlight), urgent: rpc.NewLanes(l.Requests, s.inFlight),
		requests: s.budget.Account(ownRequests, l.Unread), account: s.budget.Account(ownAnswers, l.Unread),
		turn:   make(chan struct{}, 1),
		binary: binary, ready: s.opts.RunsOnly, follows: make(map[uint32]*follow), held: make(map[*process]*resumption),
		pending: make(map[*pendingStart]struct{}),
	}
	if network != nil {
		if !s.opts.RunsOnly {
			c.handshake = time.AfterFunc(l.Handshake, func() { end(errHandshake) })
			defer c.handshake.Stop()
		}
		defer s.watch(network, t, end)()
	}
	c.files = newFiles(c.notify, c.large)
	c.files.allow, c.files.denied = a.fileCheck(), func(err error) { s.guard.Denied(a.subject, a.from, access.ActFiles, err) }
	c.http = newHTTPRequests(c.notify, c.roomFor, c.contain)
	if extend != nil {
		c.more = extend(c.notify)
	}
	err := errPanicked
	if !c.contain(func() { err = c.rpc.Serve(ctx, c) }) {
		c.rpc.End(err)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) || errors.Is(cause, errUnsent) || errors.Is(cause, errHandshake) {
		s.log.Warn("closed a connection", "peer", t, "reason", cause, "held", c.account.Held())
		err = cause
	}
	end(nil)
	c.mu.Lock()
	sess := c.session
	c.mu.Unlock()
	if sess != nil {
		sess.detach(c)
	}
	c.files.close()
	c.http.close()
	c.urgent.Wait()
	c.lanes.Wait() // before the followers, because requests may still start followers
	c.endPending()
	c.followers.Wait()
	c.requests.Close()
	c.account.Close()
	return err
}

// contain calls do and reports whether it returned. If it panicked, the connection ends,
// and all others go on.
func (c *conn) contain(do func()) (returned bool) {
	if returned = contain.Do(c.server.log, "a connection", do); !returned {
		c.end(errPanicked)
	}
	return returned
}

// following has a goroutine send what a reader asked for.
func (c *conn) following(send func()) {
	c.followers.Go(func() { c.contain(send) })
}

func (c *conn) notify(method string, params any) {
	_ = c.rpc.Notify(method, params) // a lost connection has no reader
}

// Malformed implements [rpc.Handler]. It answers with an error; the connection
// continues.
func (c *conn) Malformed(err error) error {
	b, encErr := json.Marshal(rpc.Errorf(rpc.CodeInvalidRequest, "%s", err))
	if encErr != nil {
		return encErr
	}
	return c.rpc.Send(false, slices.Concat([]byte(`{"error":`), b, []byte(`,"id":-1}`)))
}

// Notification implements [rpc.Handler].
func (c *conn) Notification(method string, params json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case method == "initialized" && c.session != nil:
		c.ready = true
		if c.handshake != nil {
			c.handshake.Stop()
		}
		return nil
	case method == "run/ack" && c.ready:
		return c.ack(params)
	case method == "run/unfollow" && c.ready:
		return c.unfollow(params)
	}
	return fmt.Errorf("unexpected notification %q", method)
}

// call handles one request.
type call func(ctx context.Context, params json.RawMessage) (any, error)

// isEnding reports whether the connection ends, or is about to because the server does.
func (c *conn) isEnding() bool { return c.ctx.Err() != nil || c.server.ctx.Err() != nil }

// Request implements [rpc.Handler]: it chooses the lane.
func (c *conn) Request(r *rpc.Request) {
	if r.Method == "initialize" && !c.server.opts.RunsOnly {
		defer r.Release()
		result, err := c.initialize(r.Params)
		r.Reply(result, err)
		return
	}
	if c.tryStart(r) {
		return
	}
	route, ok := c.route(r)
	var err error
	if !ok {
		err = rpc.Errorf(rpc.CodeMethodNotFound, "exec-server stub does not implement `%s` yet", r.Method)
	} else {
		err = c.checkReady(route.family)
	}
	n := c.admit(route.control)
	if err != nil {
		// Reply on a lane, not here: a client that is not reading its answers
		// may still send requests.
		c.lanes.Go("", 0, func() {
			defer c.requests.Add(-n)
			defer r.Release()
			r.Reply(nil, err)
		})
		return
	}
	run := func() {
		defer c.requests.Add(-n)
		defer r.Release()
		var result any
		err := errPanicked
		if !contain.Do(c.server.log, r.Method, func() { result, err = route.call(c.ctx, r.Params) }) {
			r.Reply(nil, err) // or else the client comes back with the same request
			c.end(err)
			return
		}
		if err != nil && c.isEnding() {
			// The request failed because the connection ends. The client would
			// take an error for the result; without an answer it repeats the
			// request.
			return
		}
		c.reply(r, result, err)
		if err == nil && route.after != nil {
			c.contain(func() { route.after(result) })
		}
	}
	if route.control {
		// Control requests have their own limit: many ordinary requests must
		// not delay a kill.
		c.controls.Add(1)
		c.urgent.Go("", r.Size(), func() {
			defer c.controls.Add(-1)
			run()
		})
		return
	}
	c.lanes.Go(route.lane, r.Size(), run)
}

// route tells how a request is handled.
type route struct {
	family  string // name in handshake errors
	lane    string // requests of one lane run in order; empty means no order
	control bool   // never waits behind other requests
	call    call
	after   func(result any) // runs after the answer was sent
}

func (c *conn) route(r *rpc.Request) (route, bool) {
	family, _, _ := strings.Cut(r.Method, "/")
	if _, more := c.more.Methods[r.Method]; more {
		family = "run"
	}
	if c.server.opts.RunsOnly && family != "run" {
		return route{}, false
	}
	switch family {
	case "process":
		return c.routeProcess(r)
	case "run":
		return c.routeRun(r)
	case "fs":
		// All fs requests use one lane, because a client may write a file and
		// read it in the next message. Closing a handle uses it as well: a
		// close must come after the blocks before it.
		lane := "fs"
		switch r.Method {
		case "fs/open", "fs/readBlock", "fs/writeBlock", "fs/close":
			lane = "fs " + peek(r.Params, "handleId")
		}
		return route{family: "filesystem", lane: lane, call: func(ctx context.Context, p json.RawMessage) (any, error) {
			result, ok, err := c.files.handle(ctx, r.Method, p)
			if !ok {
				return nil, rpc.Errorf(rpc.CodeMethodNotFound, "exec-server stub does not implement `%s` yet", r.Method)
			}
			return result, err
		}}, true
	case "http":
		if r.Method != "http/request" {
			return route{}, false
		}
		return route{family: "http", call: c.httpRequest}, true
	}
	if name, ok := environmentFamilies[r.Method]; ok {
		return route{family: name, control: true, call: func(_ context.Context, p json.RawMessage) (any, error) {
			if err := c.files.checkEnvironment(r.Method); err != nil {
				return nil, err
			}
			result, _, err := environmentMethod(r.Method, p, c.server.env)
			return result, err
		}}, true
	}
	return route{}, false
}

var environmentFamilies = map[string]string{
	"environment/info":           "environment info",
	"environment/status":         "environment status",
	"environmentConfig/read":     "environment config",
	"capabilityRoots/discoverV1": "capability discovery",
	"capabilities/discoverV2":    "capability discovery",
}

func (c *conn) checkReady(family string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.server.opts.RunsOnly:
		return nil
	case c.session == nil:
		return rpc.Errorf(rpc.CodeInvalidRequest, "client must call initialize before using %s methods", family)
	case !c.ready:
		return rpc.Errorf(rpc.CodeInvalidRequest, "client must send initialized before using %s methods", family)
	}
	return nil
}

// initialize runs on the reading goroutine, because everything after it
// depends on it.
func (c *conn) initialize(params json.RawMessage) (any, error) {
	c.mu.Lock()
	again := c.session != nil
	c.mu.Unlock()
	if again {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "initialize may only be sent once per connection")
	}
	var p struct {
		ClientName      string  `json:"clientName"`
		ResumeSessionID *string `json:"resumeSessionId"`
	}
	if err := decode(params, &p, "clientName"); err != nil {
		return nil, err
	}
	var sess *session
	var err error
	if p.ResumeSessionID != nil {
		sess, err = c.server.resume(*p.ResumeSessionID, c)
	} else {
		sess, err = c.server.newSession(c)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.session = sess
	c.mu.Unlock()
	return struct {
		SessionID       string `json:"sessionId"`
		EnvironmentInfo any    `json:"environmentInfo"`
	}{sess.id, c.server.env.info()}, nil
}

// peek returns one string member of params. It is used to choose a lane before
// the params are decoded.
func peek(params json.RawMessage, name string) string {
	var all map[string]json.RawMessage
	var s string
	if json.Unmarshal(params, &all) != nil || json.Unmarshal(all[name], &s) != nil {
		return ""
	}
	return s
}

func headerHas(h http.Header, name, token string) bool {
	for _, v := range h.Values(name) {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

var (
	errGone     = errors.New("the connection is gone")
	errPanicked = errors.New("internal error")
)
