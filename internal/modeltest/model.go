package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Model is a server of a scripted model.
type Model struct {
	srv      http.Server
	root     string
	script   Script
	cancel   context.CancelFunc
	serving  chan struct{}  // closed when Serve has returned
	handlers sync.WaitGroup // open requests

	mu       sync.Mutex
	requests []*Request
	answers  int // last answer id
	calls    int // last call id
	closed   bool
	err      error // the first violation of the script
}

// New starts a model that plays a script.
func New(script Script) (*Model, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start model: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Model{
		root:    "http://" + ln.Addr().String(),
		script:  script,
		cancel:  cancel,
		serving: make(chan struct{}),
	}
	mux := http.NewServeMux()
	for _, d := range dialects {
		mux.HandleFunc("POST /v1/"+d.path, func(w http.ResponseWriter, r *http.Request) { m.respond(w, r, d) })
	}
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]int{"input_tokens": InputTokens})
	})
	m.srv.Handler = mux
	m.srv.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() {
		defer close(m.serving)
		_ = m.srv.Serve(ln) // Close ends it
	}()
	return m, nil
}

// URL returns the base URL of the OpenAI dialects, which ends in /v1.
func (m *Model) URL() string { return m.root + "/v1" }

// Root returns the base URL of the Anthropic dialect, whose clients add /v1
// themselves.
func (m *Model) Root() string { return m.root }

// Requests returns every request so far, in the order of arrival.
func (m *Model) Requests() []*Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Err returns the first violation of the script: a request that the script does
// not expect, a malformed request, or a failed step. Otherwise it returns an
// error if steps are left.
func (m *Model) Err() error {
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.script.Left()
}

// Close ends all requests, including those whose step waits, and returns when
// all goroutines of m have ended.
func (m *Model) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	err := m.srv.Close()
	<-m.serving
	m.handlers.Wait()
	return err
}

// maxRequest limits the body of a request.
const maxRequest = 64 << 20

// respond answers one request with its step.
func (m *Model) respond(w http.ResponseWriter, r *http.Request, d dialect) {
	if !m.enter() {
		http.Error(w, "model is closed", http.StatusServiceUnavailable)
		return
	}
	defer m.handlers.Done()

	req, reply, err := m.play(r, d)
	if err != nil {
		m.fail(err)
		// A client error, which agents do not retry.
		reply = Reply{Failure: &Failure{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: err.Error()}}
	}
	if f := reply.Failure; f != nil {
		for name, value := range f.Header {
			w.Header().Set(name, value)
		}
		writeJSON(w, f.Status, d.failure(f))
		return
	}
	m.number(&reply)
	if !req.Stream && !reply.Cut {
		writeJSON(w, http.StatusOK, d.whole(req, reply))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	err = writeStream(w, d.stream(req, reply), reply.Cut)
	if errors.Is(err, errCut) {
		panic(http.ErrAbortHandler) // aborts the response
	}
	if err != nil {
		m.fail(fmt.Errorf("write answer: %w", err))
	}
}

// enter counts a handler, or returns false if the model is closed.
func (m *Model) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.handlers.Add(1)
	return true
}

// play decodes a request, records it, and runs its step.
func (m *Model) play(r *http.Request, d dialect) (*Request, Reply, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return nil, Reply{}, fmt.Errorf("read request: %w", err)
	}
	req := &Request{Dialect: d.name, Header: r.Header.Clone(), Body: body}
	if err := d.decode(body, req); err != nil {
		return nil, Reply{}, fmt.Errorf("decode request: %w", err)
	}
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.mu.Unlock()
	step, err := m.script.Step(req)
	if err != nil {
		return nil, Reply{}, err
	}
	reply, err := step(r.Context(), req)
	return req, reply, err
}

// number assigns ids to an answer and to its calls.
func (m *Model) number(a *Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers++
	a.id = fmt.Sprintf("answer_%d", m.answers)
	items := a.Items
	for i := range items {
		switch items[i].Type {
		case ItemFunctionCall, ItemCustomCall:
			m.calls++
			if items[i].CallID == "" {
				items[i].CallID = fmt.Sprintf("call_%d", m.calls)
			}
		}
	}
}

// fail keeps the first error. It ignores a request that its client cancelled: a
// stopped agent does so.
func (m *Model) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && !errors.Is(err, context.Canceled) && !isGone(err) {
		m.err = err
	}
}

// isGone reports whether the client disconnected.
func isGone(err error) bool {
	return strings.Contains(err.Error(), "broken pipe") || strings.Contains(err.Error(), "connection reset")
}
