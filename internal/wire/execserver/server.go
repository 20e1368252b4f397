// Package execserver serves a [spool.Backend] over the protocol of the codex
// exec-server, so that the real codex can use Spool as its remote environment,
// and over the run/* methods for all other clients.
//
// The codex dialect is JSON-RPC over WebSocket messages or lines. A session is
// a namespace of process ids that outlives its connection. A process is a run
// of the backend, labelled with session and process id; its log is the run's
// log.
package execserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Defaults of [Options].
const (
	// DefaultDetached is how long a session without a connection lives. After
	// that its processes are killed.
	DefaultDetached = 30 * time.Second
	// DefaultClosed is how long the id of a closed process stays reserved.
	DefaultClosed = 30 * time.Second

	pingEvery = 30 * time.Second
	// maxInFlightBytes limits the bytes of unanswered requests of a
	// connection; see also [Limits].
	maxInFlightBytes = 32 << 20
)

// Options configure a server.
type Options struct {
	Backend  spool.Backend
	Auth     access.Authenticator // nil admits every client as the owner
	Audit    *access.Audit        // nil writes no audit log
	Version  string               // reported to clients
	Cwd      string               // reported to clients
	Detached time.Duration        // zero means DefaultDetached
	Closed   time.Duration        // zero means DefaultClosed
	// Keep leaves live runs to the backend when the server closes, for the next
	// server to resume. Without it Close kills the runs that this server
	// started.
	Keep bool
	// RunsOnly offers the run/* methods without a handshake, and nothing of the
	// codex dialect.
	RunsOnly bool
	// Trusted lets clients set all labels: they are other nodes of a cluster, which
	// have checked those of their clients.
	Trusted bool
	Limits  Limits
	Logger  *slog.Logger // nil discards
}

// Server is an exec-server. It is an [http.Handler].
type Server struct {
	opts Options
	id   string // label of the runs it starts
	env  environment
	log  *slog.Logger

	guard    *access.Guard
	waits    waits
	inFlight int // most bytes of unanswered requests of a connection

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	started  atomic.Bool   // run/start started a run
	budget   *rpc.Budget   // what all connections hold
	intake   *rpc.Intake   // what all connections sent
	making   chan struct{} // filled by large answers that are made
	relaying chan struct{} // filled by records that are in memory to be sent
	paused   *rpc.Account  // records that wait for clients; see pausedBytes

	mu       sync.Mutex
	sessions map[string]*session // by sessionLabel
	admitted map[*admission]struct{}
	checking bool // checkAdmitted runs
	conns    int  // over the network
	closed   bool
}

// New returns a server for the backend.
func New(o Options) *Server {
	if o.Detached == 0 {
		o.Detached = DefaultDetached
	}
	if o.Closed == 0 {
		o.Closed = DefaultClosed
	}
	if o.Auth != nil {
		o.Auth = access.NewThrottle(o.Auth)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{
		opts: o, id: newUUID(), log: o.Logger, env: newEnvironment(o.Cwd, o.Version),
		budget: rpc.NewBudget(o.Limits.UnreadTotal), intake: rpc.NewIntake(requestBytes, o.Limits.Received), making: make(chan struct{}, runtime.GOMAXPROCS(0)),
		relaying: make(chan struct{}, relayingAtOnce), paused: rpc.NewBudget(pausedBytes).Account(0, pausedBytes),
		sessions: make(map[string]*session), admitted: make(map[*admission]struct{}),
		waits: waits{probe: probeFor, hold: holdFor, crowded: crowdedStalled}, inFlight: maxInFlightBytes,
	}
	s.guard = access.NewGuard(o.Backend, o.Audit)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ServeHTTP serves the HTTP endpoints of the dialect: the WebSocket upgrade on
// / and /readyz.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header["Origin"] != nil:
		// A page in a browser must never reach a process server on loopback.
		http.Error(w, "requests with an Origin header are refused", http.StatusForbidden)
	case r.URL.Path != "/" && r.URL.Path != "/readyz":
		http.NotFound(w, r)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == "/readyz":
		w.WriteHeader(http.StatusOK)
	case !headerHas(r.Header, "Connection", "upgrade"):
		http.Error(w, "Connection header did not include 'upgrade'", http.StatusBadRequest)
	default:
		s.upgrade(w, r)
	}
}

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	subject, ok := s.authenticate(w, r)
	if !ok {
		return
	}
	if !s.connect() {
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	serve := s.accept(s.ctx, w, r, subject, websocket.AcceptOptions{}, nil)
	// In another goroutine, so that net/http frees what the request has taken: buffers,
	// and a stack that is several times as large as the connection needs.
	go serve()
}

// ServeRuns serves a WebSocket of a subject that the caller has admitted, until it or
// the context of the request ends. If the cause of that is a [websocket.CloseError], it
// is what the client is told. The caller has checked the origin, and may extend the
// connection.
func (s *Server) ServeRuns(w http.ResponseWriter, r *http.Request, subject *access.Subject, extend func(notify func(method string, params any)) runproto.Extension) {
	if !s.connect() {
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	s.accept(r.Context(), w, r, subject, websocket.AcceptOptions{InsecureSkipVerify: true}, extend)()
}

// accept upgrades a request and returns a function that serves the connection, which
// [Server.connect] has counted. The caller calls it.
func (s *Server) accept(ctx context.Context, w http.ResponseWriter, r *http.Request, subject *access.Subject, o websocket.AcceptOptions, extend extension) (serve func()) {
	hj := &hijacker{ResponseWriter: w}
	o.Subprotocols, o.CompressionMode = []string{runproto.Subprotocol}, websocket.CompressionDisabled
	c, err := websocket.Accept(hj, r, &o)
	if err != nil {
		s.log.Debug("upgrade failed", "peer", r.RemoteAddr, "err", err)
		return s.disconnect
	}
	t := s.intake.WebSocket(c, hj.frames, "exec-server websocket "+r.RemoteAddr)
	if !s.begin() {
		_ = t.Close()
		return s.disconnect
	}
	conn, peer, from := hj.conn, r.RemoteAddr, access.Source(r) // and nothing else of the request
	return func() {
		defer s.wg.Done()
		defer s.disconnect()
		s.serveWebSocket(ctx, c, t, conn, peer, from, subject, extend)
	}
}

// serveWebSocket serves a connection until it or the context ends.
func (s *Server) serveWebSocket(ctx context.Context, c *websocket.Conn, t *rpc.Received, conn *watchedConn, peer, from string, subject *access.Subject, extend extension) {
	asked := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(asked, func() {
		var end websocket.CloseError
		switch cause := context.Cause(asked); {
		case errors.As(cause, &end):
			farewell(c, end)
		case errors.Is(cause, spool.ErrClosed):
			farewell(c, websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "shutdown"})
		}
		cancel()
	})()
	ctx, a, leave := s.admit(ctx, subject, from)
	defer leave()
	defer repeat(pingEvery, func() bool {
		err := rpc.PingWithin(ctx, t, pingEvery)
		if err != nil {
			s.log.Debug("connection ended", "peer", peer, "err", err)
			cancel()
		}
		return err != nil
	})()
	err := s.serve(ctx, t, conn, c.Subprotocol() == runproto.Subprotocol, a, extend)
	s.log.Debug("connection ended", "peer", peer, "err", err)
}

// farewellFor is how long a client has to take why its connection ends.
const farewellFor = 2 * time.Second

// farewell tells a client why its connection ends, which it learns from the close code.
func farewell(c *websocket.Conn, why websocket.CloseError) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_ = c.Close(why.Code, why.Reason) // the client may have left
	}()
	timer := time.NewTimer(farewellFor)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	}
}

// begin counts a connection, or returns false if the server is closing.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

// ServeStdio serves one connection with one message per line. The end of the
// connection ends its session.
func (s *Server) ServeStdio(ctx context.Context, r io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.begin() {
		return spool.ErrClosed
	}
	defer s.wg.Done()
	ctx, a, leave := s.admit(ctx, access.Owner(), "stdio")
	defer leave()
	err := s.serve(ctx, rpc.Lines(r, w, "exec-server stdio"), nil, false, a, nil)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Close ends all connections. It kills the runs that this server started,
// unless Options.Keep is set.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	sessions := s.sessions
	s.sessions = make(map[string]*session)
	s.mu.Unlock()
	s.cancel()
	if s.opts.Keep {
		for _, sess := range sessions {
			sess.leave()
		}
	} else {
		for _, sess := range sessions {
			sess.end()
		}
		if s.started.Load() {
			s.killLabelled(map[string]string{labelServer: s.id})
		}
	}
	s.wg.Wait()
}

// killLabelled kills the live runs that have all these labels and returns their
// number. It also finds runs that an earlier server of the session was starting
// when it died.
func (s *Server) killLabelled(labels map[string]string) int {
	ctx := context.Background()
	f := spool.Filter{Live: true, Labels: labels}
	n := 0
	for info, err := range s.opts.Backend.List(ctx, f) {
		if err == nil {
			n++
			err = s.opts.Backend.Control(ctx, info.ID, spool.Control{Op: spool.ControlKill})
		}
		if err != nil {
			s.log.Warn("killing leftover runs", "labels", f.Labels, "run", info.ID, "err", err)
		}
	}
	return n
}
