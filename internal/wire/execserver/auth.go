package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// checkEvery is how often the tokens of open connections are checked.
const checkEvery = time.Second

// admission is an open connection of a subject, whose token may be revoked.
type admission struct {
	subject *access.Subject
	from    string
	backend spool.Backend // what the subject may use
	cancel  context.CancelCauseFunc
}

// fileCheck returns what checks the paths that a client uses; nil allows all.
func (a *admission) fileCheck() func(path string) error {
	if !a.subject.Scopes.RestrictsFiles() {
		return nil
	}
	return a.subject.Scopes.CheckPath
}

// authenticate returns the subject of a request, or answers it with the reason
// why there is none.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (*access.Subject, bool) {
	if s.opts.Auth == nil {
		return access.Owner(), true
	}
	subject, err := s.opts.Auth.Authenticate(r)
	if err == nil {
		return subject, true
	}
	s.guard.Denied(nil, access.Source(r), access.ActConnect, err)
	refusal := &access.Refusal{Status: http.StatusInternalServerError, Text: "authentication failed"}
	errors.As(err, &refusal)
	s.log.Info("connection refused", "peer", r.RemoteAddr, "status", refusal.Status, "reason", refusal.Text, "err", refusal.Err)
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refusal.RetryAfter.Seconds()))))
	}
	http.Error(w, refusal.Text, refusal.Status)
	return nil, false
}

// admit begins a connection. Its context ends when the token of the subject
// expires or is revoked. The caller calls leave at the end of the connection.
func (s *Server) admit(ctx context.Context, subject *access.Subject, from string) (_ context.Context, a *admission, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a = &admission{subject, from, s.guard.Backend(subject, from), cancel}
	s.guard.Connected(subject, from)
	if s.opts.Auth == nil {
		return ctx, a, func() {
			s.guard.Disconnected(subject, from, a.backend, "")
			cancel(nil)
		}
	}
	var expiry *time.Timer
	if !subject.Expires.IsZero() {
		expiry = time.AfterFunc(time.Until(subject.Expires), func() { s.dismiss(a, errExpired) })
	}
	s.mu.Lock()
	s.admitted[a] = struct{}{}
	start := !s.checking && !s.closed
	if start {
		s.checking = true
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if start {
		go s.checkAdmitted()
	}
	return ctx, a, func() {
		if expiry != nil {
			expiry.Stop()
		}
		s.mu.Lock()
		delete(s.admitted, a)
		s.mu.Unlock()
		reason := ""
		if cause := context.Cause(ctx); errors.Is(cause, spool.ErrDenied) {
			reason = cause.Error()
		}
		s.guard.Disconnected(subject, from, a.backend, reason)
		cancel(nil)
	}
}

// dismiss ends a connection.
func (s *Server) dismiss(a *admission, err error) {
	s.log.Info("connection closed", "subject", a.subject.String(), "err", err)
	a.cancel(err)
}

// checkAdmitted ends connections whose tokens are no longer valid, until there
// are no connections.
func (s *Server) checkAdmitted() {
	defer s.wg.Done()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		open := make([]*admission, 0, len(s.admitted))
		for a := range s.admitted {
			open = append(open, a)
		}
		s.checking = len(open) > 0
		s.mu.Unlock()
		if len(open) == 0 {
			return
		}
		for _, a := range open {
			if err := s.opts.Auth.Valid(a.subject); err != nil {
				s.dismiss(a, err)
			}
		}
	}
}

var errExpired = fmt.Errorf("%w: the token has expired", spool.ErrDenied)

// httpRequest serves http/request, for subjects that could send the request with a
// process of their own.
func (c *conn) httpRequest(ctx context.Context, params json.RawMessage) (any, error) {
	if err := c.subject.Scopes.Require(access.StartOf(spool.EngineProcess)); err != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "%s", err)
	}
	return c.http.handle(ctx, params)
}
