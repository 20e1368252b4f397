package mcpapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

const (
	// maxBody is the size of a request over HTTP.
	maxBody = 8 << 20
	// maxServers is how many servers a handler keeps, one for each subject and place.
	maxServers = 256
)

// Handler serves clients over HTTP, each as its subject, without sessions: what a client
// needs to go on is in its arguments. The caller has checked Host, Origin and the
// token.
type Handler struct {
	opts Options
	http http.Handler

	mu      sync.Mutex
	servers map[serverKey]*Server
}

// serverKey says whom a server serves.
type serverKey struct {
	name, scopes string
	backend      spool.Backend
}

// serverOf is the key of the server in the context of a request.
type serverOf struct{}

// NewHandler returns a handler. Backend and Subject of the options are not used.
func NewHandler(o Options) *Handler {
	if o.Key == nil {
		o.Key = make([]byte, 32)
		_, _ = rand.Read(o.Key) // never fails
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = heartbeat
	}
	h := &Handler{opts: o, servers: make(map[serverKey]*Server)}
	h.http = mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		s, _ := r.Context().Value(serverOf{}).(*mcp.Server)
		return s
	}, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, Logger: o.Logger,
		// The gate in front of it checks Host more strictly, and lets the names pass
		// that a proxy on this machine uses.
		DisableLocalhostProtection: true,
	})
	return h
}

// Serve serves a request of a subject with its part of the backend.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, s *access.Subject, b spool.Backend) {
	alive := &aliveWriter{ResponseWriter: w, control: http.NewResponseController(w), every: h.opts.Heartbeat}
	defer alive.end()
	ctx := context.WithValue(context.WithValue(r.Context(), aliveKey{}, alive), serverOf{}, h.server(s, b).mcp)
	h.http.ServeHTTP(alive, r.WithContext(ctx))
}

// server returns the server of a subject.
func (h *Handler) server(s *access.Subject, b spool.Backend) *Server {
	key := serverKey{name: s.Name, backend: b}
	var scopes strings.Builder
	for _, scope := range s.Scopes {
		scopes.WriteString(string(scope) + "\n")
	}
	key.scopes = scopes.String()
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.servers[key]; known != nil {
		return known
	}
	if len(h.servers) >= maxServers {
		clear(h.servers)
	}
	o := h.opts
	o.Backend, o.Subject = b, s
	h.servers[key] = New(o)
	return h.servers[key]
}
