package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/access"
)

// TicketRequest is what a ticket is to be for.
type TicketRequest struct {
	Path   string `json:"path"`             // of a GET below /v1/runs/, with its query
	Stream bool   `json:"stream,omitempty"` // as often as needed, until the session ends
}

// TicketInfo is a ticket.
type TicketInfo struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires,omitzero"`
}

// ticketPrefix begins the addresses of tickets.
const ticketPrefix = "/t/"

func (c *call) makeTicket() error {
	if c.server.tickets == nil {
		return problemf("unsupported", "this server has no pages, and so no tickets")
	}
	var q TicketRequest
	if err := c.decode(&q, "ticket"); err != nil {
		return err
	}
	target, err := c.server.ticketTarget(q.Path)
	if err != nil {
		return err
	}
	text, expires, err := c.server.tickets.Make(c.subject, target, q.Stream)
	if err != nil {
		return err
	}
	return c.reply(http.StatusCreated, TicketInfo{ticketPrefix + text, expires.UTC()})
}

// ticketTarget checks the path of a ticket: it must read something of a run.
func (s *Server) ticketTarget(path string) (string, error) {
	u, err := url.ParseRequestURI(path)
	bad := err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(path, "/v1/runs/")
	if !bad {
		_, pattern := s.mux.Handler(&http.Request{Method: http.MethodGet, URL: u, Host: "localhost"})
		bad = !strings.HasPrefix(pattern, "/v1/runs/{run}") || !slices.ContainsFunc(operations(), func(op operation) bool {
			return op.pattern == pattern && op.method == http.MethodGet && op.scope == access.Read && op.protocol == ""
		})
	}
	if bad {
		return "", problemf("invalid", "the path of a ticket is one below /v1/runs/ that takes GET, not %.200q", path)
	}
	return u.RequestURI(), nil
}

// ticketKey is the key of the subject of a ticket in the context of a request.
type ticketKey struct{}

// serveTicket answers a request with a ticket as that for which it was made.
func (s *Server) serveTicket(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Frame-Options", "SAMEORIGIN") // our page frames displays
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'self'")
	c := &call{server: s, w: w, r: r, id: h.Get("Spool-Request"), ctx: r.Context()}
	switch {
	case s.tickets == nil:
		c.fail(problemf("no_route", "there is no %s", r.URL.Path))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		c.fail(problemf("method", "a ticket takes GET and HEAD"))
		return
	}
	subject, target, err := s.tickets.Use(r, strings.TrimPrefix(r.URL.Path, ticketPrefix))
	if err != nil {
		c.fail(c.refuse(access.ActConnect, s.auth.Fail(r, err)))
		return
	}
	u, err := url.ParseRequestURI(target)
	if err != nil { // was checked
		c.fail(err)
		return
	}
	inner := r.Clone(context.WithValue(r.Context(), ticketKey{}, subject))
	inner.URL, inner.RequestURI = u, target
	s.mux.ServeHTTP(w, inner)
}
