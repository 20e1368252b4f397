// Package httpapi serves a [spool.Backend] over HTTP: JSON under /v1, with
// server-sent events for logs.
//
// One table, operations, says which addresses there are, what they take, what they
// answer and who may use them. Routes, checks and the OpenAPI document come from it.
// A handler reads and writes in the goroutine of its request: a stream has a cursor
// and no queue. Streams that wait for the same events leave their requests, and one
// goroutine writes to them all; see parked.
package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/lens"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Options configure a server.
type Options struct {
	Backend spool.Backend
	// Auth says who sends a request; nil admits every client as the owner.
	Auth access.Authenticator
	// SignIn is how pages become subjects that Auth knows; nil lets none.
	SignIn *access.SignIn
	// Proxies are what is believed of where requests come from; other machines
	// are refused if there are some and no TLS.
	Proxies access.Proxies
	// Gate refuses what pages of other sites send; nil lets everything pass.
	Gate *access.Gate
	// MCP serves requests to /mcp, which need a subject and are not in the table; nil
	// serves none.
	MCP func(http.ResponseWriter, *http.Request, *access.Subject, spool.Backend)
	// ACP serves clients of /acp, which are not in the table either, with one of the
	// agents; nil serves none.
	ACP     ACP
	ACPWith []string
	Audit   *access.Audit // nil writes no audit log
	Version string        // reported to clients
	Limits  Limits
	Logger  *slog.Logger // nil discards
	// Gauges, if not nil, adds numbers to /metrics.
	Gauges func(gauge func(name, help string, value float64))
	// RPC serves the WebSocket of /v1/rpc; nil means that there is none.
	RPC RPC
	// Agents finds the coding agents of the machine; nil knows of none.
	Agents func(context.Context) []agent.Installed
	// Nodes lists the nodes of the cluster; nil means that there is none.
	Nodes func() []spool.Node
	// Parked, if not nil, is called with 1 before ServeHTTP returns for a request whose
	// answer goes on, and with -1 when that is over.
	Parked func(int)
}

// RPC serves connections that speak the run/* protocol, for subjects that this package
// has admitted.
type RPC interface {
	// ServeRuns upgrades a request and returns when the connection ends, which
	// the end of the context of the request makes it do. What extend returns is
	// served beside run/*.
	ServeRuns(w http.ResponseWriter, r *http.Request, subject *access.Subject, extend func(notify func(method string, params any)) runproto.Extension)
}

// Server is the HTTP API. It is an [http.Handler].
type Server struct {
	backend  spool.Backend
	auth     *access.Throttle // nil admits every client as the owner
	signIn   *access.SignIn
	tickets  *access.Tickets // nil without pages
	rates    access.Rates
	proxies  access.Proxies
	audit    *access.Audit // nil without one
	counters counters
	gate     *access.Gate
	guard    *access.Guard
	version  string
	limits   Limits
	log      *slog.Logger
	gauges   func(gauge func(name, help string, value float64)) // nil without further numbers
	mux      *http.ServeMux
	visits   visits
	streams  streams
	parking  parking
	presence presence
	lens     *lens.Lens
	rpc      RPC
	agents   agents
	nodes    func() []spool.Node
	openAPI  func() ([]byte, error) // made once

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// New returns a server for the backend.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		backend: o.Backend, signIn: o.SignIn, proxies: o.Proxies, audit: o.Audit, gate: o.Gate, guard: access.NewGuard(o.Backend, o.Audit), version: o.Version,
		limits: o.Limits.withDefaults(), log: o.Logger, gauges: o.Gauges, mux: http.NewServeMux(),
		rpc: o.RPC, agents: agents{find: o.Agents}, nodes: o.Nodes,
	}
	s.lens = lens.New(o.Backend, lens.Options{
		Memory: s.limits.Lens, Checkpoints: s.limits.Checkpoints, Rows: s.limits.Lines, Bytes: s.limits.LinesBytes, Line: s.limits.Line,
	})
	if o.Auth != nil {
		s.auth = access.NewRefuser(o.Auth, s.limits.Failures, s.limits.FailuresTotal)
	}
	if o.SignIn != nil && s.auth != nil {
		s.tickets = access.NewTickets(o.SignIn.Sessions)
	}
	s.rates.Starts, s.rates.Inputs, s.rates.Requests = s.limits.StartRate, s.limits.InputRate, s.limits.RequestRate
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.visits = visits{server: s, open: make(map[visitKey]*visit)}
	s.streams = streams{server: s, open: make(map[*stream]struct{}), bySubject: make(map[string]int), byRun: make(map[spool.RunID]int)}
	s.parking = parking{server: s, count: o.Parked, groups: make(map[streamForm]*group)}
	s.openAPI = sync.OnceValues(func() ([]byte, error) { return document(s.version) })
	s.route()
	if o.ACP != nil {
		s.mux.Handle("/acp", s.methods(map[string]*operation{http.MethodGet: acpOperation(o.ACPWith, o.ACP)}))
	}
	if o.MCP != nil {
		s.mux.Handle("/mcp", s.methods(map[string]*operation{http.MethodPost: {name: "mcp", serve: func(c *call) error {
			if c.r.Header.Get("Mcp-Method") == "subscriptions/listen" { // it lasts
				end, err := s.streams.begin(c)
				if err != nil {
					return err
				}
				defer end()
			}
			o.MCP(c.w, c.r.WithContext(c.ctx), c.subject, c.backend)
			return nil
		}}}))
	}
	return s
}

// route fills the mux from the table.
func (s *Server) route() {
	byPattern := make(map[string]map[string]*operation)
	for i := range operations() {
		op := &operations()[i]
		if byPattern[op.pattern] == nil {
			byPattern[op.pattern] = make(map[string]*operation)
		}
		byPattern[op.pattern][op.method] = op
	}
	for pattern, methods := range byPattern {
		s.mux.Handle(pattern, s.methods(methods))
	}
	s.mux.HandleFunc(ticketPrefix+"{ticket}", s.serveTicket)
	s.mux.Handle("/", s.methods(nil))
}

// methods serves the operations of one address.
func (s *Server) methods(methods map[string]*operation) http.Handler {
	allow := slices.Collect(maps.Keys(methods))
	if methods["GET"] != nil {
		allow = append(allow, "HEAD")
	}
	slices.Sort(allow)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patient := newPatientWriter(w, r, &s.limits)
		defer patient.end()
		c := &call{server: s, w: patient, patient: patient, r: r, id: w.Header().Get("Spool-Request")}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		c.op = methods[method]
		c.ctx, c.cancel = context.WithCancelCause(r.Context())
		stop := context.AfterFunc(s.ctx, func() { c.cancel(context.Cause(s.ctx)) })
		defer func() { stop(); c.cancel(nil) }()
		if c.op != nil {
			s.counters.count(&s.counters.requests, c.op.name)
		}
		err := error(problemf("no_route", "there is no %s", r.URL.Path))
		switch {
		case c.op != nil:
			err = c.serve()
		case methods != nil:
			w.Header().Set("Allow", strings.Join(allow, ", "))
			err = problemf("method", "%s takes %s", r.URL.Path, strings.Join(allow, ", "))
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Spool-Request", "rq-"+strings.ToLower(rand.Text()[:16]))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	if r.TLS == nil && !s.proxies.Admits(r) {
		c := &call{server: s, w: w, r: r, id: h.Get("Spool-Request"), ctx: r.Context()}
		c.fail(problemf("forbidden", "this server talks to its proxies and to its own machine only"))
		return
	}
	r = s.proxies.Resolve(r)
	page := pageAt(r.URL.Path)
	if s.gate == nil && page != nil {
		page.serve(w, r)
		return
	}
	if s.gate == nil {
		s.mux.ServeHTTP(w, r)
		return
	}
	origin, err := s.gate.Check(r)
	if page != nil && page.links() && access.IsLink(r) { // other sites may link to pages
		origin, err = "", s.gate.CheckHost(r)
	}
	var refused *access.GateError
	switch {
	case errors.As(err, &refused):
		s.log.Info("request refused", "request", h.Get("Spool-Request"), "peer", r.RemoteAddr, "reason", refused.Text)
		c := &call{server: s, w: w, r: r, id: h.Get("Spool-Request"), ctx: r.Context()}
		c.fail(problemf(refused.Code, "%s", refused.Text))
	case page != nil:
		page.serve(w, r)
	case origin == "":
		s.mux.ServeHTTP(w, r)
	default:
		s.serveOrigin(w, r, origin)
	}
}

// serveOrigin serves a request of a page of another origin that may send some. Such
// pages send a token: no cookie ever counts for them.
func (s *Server) serveOrigin(w http.ResponseWriter, r *http.Request, origin string) {
	r.Header.Del("Cookie")
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "ETag, Location, Retry-After, Spool-First, Spool-Last, Spool-Next, Spool-Request")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions {
		s.mux.ServeHTTP(w, r)
		return
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Range")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// serve finds out who asks, checks the request and calls the handler.
func (c *call) serve() error {
	s := c.server
	if s.ctx.Err() != nil {
		return spool.ErrClosed
	}
	if !c.op.open {
		if err := c.enter(); err != nil {
			return err
		}
	}
	if err := c.checkQuery(); err != nil {
		return err
	}
	return c.op.serve(c)
}

// enter finds out who asks, and whether it may.
func (c *call) enter() error {
	s := c.server
	c.subject = access.Owner()
	if ticket, ok := c.r.Context().Value(ticketKey{}).(*access.Subject); ok {
		c.subject = ticket
	} else if s.auth != nil {
		var err error
		if c.subject, err = s.auth.Authenticate(c.r); err != nil {
			return c.refuse(access.ActConnect, err)
		}
	}
	return c.admit()
}

// admit checks whether the subject may do what it asks for, now.
func (c *call) admit() error {
	s := c.server
	from := access.Source(c.r)
	if err := c.subject.Scopes.Require(c.op.scope); c.op.scope != "" && err != nil && !c.op.startsAny(c.subject.Scopes) {
		s.guard.Denied(c.subject, from, c.op.name, err)
		return &Problem{Code: "forbidden", Detail: err.Error(), Scope: c.op.scope}
	}
	if wait := s.rates.Take(c.subject, c.op.rate()); wait > 0 {
		p := problemf("rate", "%s sends too many requests of this kind", c.subject)
		p.RetryAfterMs = max(1, wait.Milliseconds())
		return p
	}
	c.backend = s.visits.backend(c.subject, from)
	return nil
}

// refuse notes that a client did not prove who it is, and returns the problem.
func (c *call) refuse(act string, err error) error {
	c.server.guard.Denied(nil, access.Source(c.r), act, err)
	refusal := &access.Refusal{Err: err, Text: "authentication failed"}
	errors.As(err, &refusal)
	c.server.log.Info("request refused", "request", c.id, "peer", c.r.RemoteAddr, "reason", refusal.Text, "err", refusal.Err)
	return unauthenticated(refusal)
}

// rate returns which rate a request counts for.
func (op *operation) rate() int {
	switch op.scope {
	case access.Start:
		return access.RateStarts
	case access.Input, access.Answer:
		return access.RateInputs
	}
	return access.RateRequests
}

// startsAny reports whether the operation starts runs and the scopes allow runs of
// some engine: which one, the backend checks.
func (op *operation) startsAny(scopes access.Scopes) bool {
	return op.scope == access.Start && slices.ContainsFunc(scopes, func(s access.Scope) bool {
		return strings.HasPrefix(string(s), string(access.StartOf("")))
	})
}

// Close ends streams, with a word to their clients, and requests that wait, and
// returns when they are over or the time is up. Runs are not touched.
func (s *Server) Close(grace time.Duration) {
	s.cancel(spool.ErrClosed)
	s.presence.dismiss()
	over := make(chan struct{})
	go func() {
		s.streams.wait()
		s.wg.Wait()
		s.parking.pool.Wait()
		close(over)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		s.streams.cut()
	}
	s.visits.close()
}
