// Package serve gives a program the HTTP API of Spool over its own backend, as one
// [http.Handler]: runs, their events as pages and as server-sent events, output,
// input, turns, asks and search; and, at /mcp, tools for models. The command "spool serve"
// offers the same; docs/api.md and docs/mcp.md describe it.
//
//	backend, err := local.Open(dir, local.Options{})
//	…
//	h, err := serve.New(backend, serve.Options{Authenticate: whoIs})
//	…
//	err = http.ListenAndServe("127.0.0.1:8080", h)
package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// Options configure a [Handler].
type Options struct {
	// Authenticate says who sends a request. An error refuses the request; its
	// text is not sent. There is no default: a client of the API can run
	// commands.
	Authenticate func(r *http.Request) (Subject, error)
	// Hosts are the names of the server beside its addresses and localhost.
	// Requests with another Host header are refused, because a page can have its
	// own name resolve to this server.
	Hosts []string
	// Origins are those of pages, such as https://example.com, that may send
	// requests. Pages of other sites may not, with any method.
	Origins []string
	Limits  Limits
	Version string       // reported to clients
	Logger  *slog.Logger // nil discards
}

// Subject is who sends a request. It sees the runs that it started, and no others.
type Subject struct {
	// Name is what the runs of the subject are filed under. The subject without
	// a name is the owner of the backend: it sees all runs and may do everything.
	Name string
	// Scopes are what it may do, as "spool token create --scope" takes them; none
	// means all that concerns its own runs but deleting them.
	Scopes []string
}

// Handler serves the API. [Handler.Close] ends it.
//
// Streams of HTTP/1.1 take the connections of their requests, as WebSockets do, and go on
// after ServeHTTP has returned, if h gets the [http.ResponseWriter] of net/http itself.
// [http.Server.Shutdown] does not wait for them; Close ends them.
type Handler struct {
	server *httpapi.Server
	rpc    *execserver.Server
}

// New returns a handler over a backend, which stays the caller's to close.
func New(b spool.Backend, o Options) (*Handler, error) {
	if o.Authenticate == nil {
		return nil, fmt.Errorf("serve: %w: Options.Authenticate is nil: a client of the API can run commands", spool.ErrInvalid)
	}
	for _, origin := range o.Origins {
		if err := access.CheckOrigin(origin); err != nil {
			return nil, fmt.Errorf("serve: %w: %w", spool.ErrInvalid, err)
		}
	}
	tools := mcpapi.NewHandler(mcpapi.Options{Env: &spool.EnvPolicy{Inherit: "core"}, AgentEnv: &spool.EnvPolicy{Inherit: "core"}, Version: o.Version, Logger: o.Logger})
	rpc := execserver.New(execserver.Options{Backend: b, Version: o.Version, Keep: true, RunsOnly: true, Logger: o.Logger})
	return &Handler{rpc: rpc, server: httpapi.New(httpapi.Options{
		RPC: rpc, Backend: b, Auth: authenticator(o.Authenticate), Gate: &access.Gate{Hosts: o.Hosts, Origins: o.Origins},
		MCP: tools.Serve, Version: o.Version, Limits: httpapi.Limits(o.Limits), Logger: o.Logger,
	})}, nil
}

// Configure has an [http.Server] that serves h offer HTTP/2 beside HTTP/1.1, and sets the
// limits of its connections: of headers, and of requests at once.
func (h *Handler) Configure(s *http.Server) { h.server.Configure(s) }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.server.ServeHTTP(w, r) }

// Close ends requests that wait and all streams, whose clients are told to come
// back. It waits for them no longer than the grace. Runs go on.
func (h *Handler) Close(grace time.Duration) {
	h.server.Close(grace)
	h.rpc.Close()
}

// authenticator is a function as an [access.Authenticator].
type authenticator func(r *http.Request) (Subject, error)

// Authenticate implements [access.Authenticator].
func (a authenticator) Authenticate(r *http.Request) (*access.Subject, error) {
	s, err := a(r)
	if err != nil {
		return nil, &access.Refusal{Status: http.StatusUnauthorized, Text: "the request is not authenticated"}
	}
	if s.Name == "" {
		return access.Owner(), nil
	}
	subject := &access.Subject{Name: s.Name, Scopes: access.DefaultScopes()}
	err = access.CheckName(s.Name)
	if len(s.Scopes) > 0 {
		subject.Scopes = nil
	}
	for _, text := range s.Scopes {
		scope, scopeErr := access.ParseScope(text)
		err = errors.Join(err, scopeErr)
		subject.Scopes = append(subject.Scopes, scope)
	}
	if err != nil {
		return nil, &access.Refusal{Status: http.StatusInternalServerError, Text: "authentication failed", Err: err}
	}
	return subject, nil
}

// Valid implements [access.Authenticator]: nobody says when a subject is no longer
// one.
func (a authenticator) Valid(*access.Subject) error { return nil }
