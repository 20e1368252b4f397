package codextest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Model is a scripted model: a server on loopback which speaks as much of the
// OpenAI Responses API as codex uses. Each request takes the next step of the
// script.
type Model struct {
	srv      http.Server
	url      string
	cancel   context.CancelFunc
	serving  chan struct{}  // closed when Serve has returned
	handlers sync.WaitGroup // requests being answered

	mu       sync.Mutex
	script   []Step
	requests []*Request
	calls    int // call ids given out
	closed   bool
	err      error // the first thing that went against the script
}

// NewModel starts a model that plays the steps of a script.
func NewModel(script ...Step) (*Model, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Model{
		url:     "http://" + ln.Addr().String() + "/v1",
		cancel:  cancel,
		serving: make(chan struct{}),
		script:  script,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", m.respond)
	m.srv.Handler = mux
	m.srv.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() {
		defer close(m.serving)
		m.srv.Serve(ln)
	}()
	return m, nil
}

// URL returns the base URL to configure as that of a model provider.
func (m *Model) URL() string { return m.url }

// Requests returns every request so far, in the order of arrival.
func (m *Model) Requests() []*Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Outputs returns the tool outputs the model has seen so far, oldest first.
func (m *Model) Outputs() []Output {
	requests := m.Requests()
	if len(requests) == 0 {
		return nil
	}
	return requests[len(requests)-1].Outputs() // each request repeats the history
}

// Err reports the first request that went against the script, came malformed
// or failed in its step, or else that steps are left over.
func (m *Model) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if left := len(m.script) - len(m.requests); left > 0 {
		return fmt.Errorf("script has %d of %d steps left", left, len(m.script))
	}
	return nil
}

// Close ends all requests, also those whose step waits, and returns when
// nothing of m runs any more.
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

// respond answers one request with the next step.
func (m *Model) respond(w http.ResponseWriter, r *http.Request) {
	if !m.enter() {
		http.Error(w, "model is closed", http.StatusServiceUnavailable)
		return
	}
	defer m.handlers.Done()

	items, err := m.play(r)
	if err != nil {
		m.fail(err)
		// A client error, which codex does not retry.
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": err.Error()}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if err := writeResponse(w, items); err != nil {
		m.fail(fmt.Errorf("write response: %w", err))
	}
}

// enter counts a handler in, unless the model is closed.
func (m *Model) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.handlers.Add(1)
	return true
}

// play reads a request, keeps it, and runs its step.
func (m *Model) play(r *http.Request) ([]Item, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	req := &Request{Header: r.Header.Clone(), Body: body}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	step, err := m.next(req)
	if err != nil {
		return nil, err
	}
	items, err := step(r.Context(), req)
	if err != nil {
		return nil, err
	}
	m.number(items)
	return items, nil
}

// next keeps a request and returns its step.
func (m *Model) next(req *Request) (Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, req)
	if n := len(m.requests); n > len(m.script) {
		return nil, fmt.Errorf("request %d is beyond the script of %d steps", n, len(m.script))
	}
	return m.script[len(m.requests)-1], nil
}

// number gives call ids to the calls that have none.
func (m *Model) number(items []Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range items {
		switch items[i].Type {
		case itemFunctionCall, itemCustomCall:
			m.calls++
			if items[i].CallID == "" {
				items[i].CallID = fmt.Sprintf("call_%d", m.calls)
			}
		}
	}
}

func (m *Model) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && !(m.closed && errors.Is(err, context.Canceled)) {
		m.err = err
	}
}

// writeResponse sends a whole response as server-sent events.
func writeResponse(w io.Writer, items []Item) error {
	type response struct {
		ID    string         `json:"id"`
		Usage map[string]int `json:"usage,omitempty"`
	}
	type event struct {
		Type     string    `json:"type"`
		Response *response `json:"response,omitempty"`
		Item     *Item     `json:"item,omitempty"`
	}
	const id = "resp"
	events := []event{{Type: "response.created", Response: &response{ID: id}}}
	for i := range items {
		events = append(events, event{Type: "response.output_item.done", Item: &items[i]})
	}
	events = append(events, event{Type: "response.completed", Response: &response{
		ID:    id,
		Usage: map[string]int{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
	}})
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, data); err != nil {
			return err
		}
	}
	return nil
}
