package httpapi

import (
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// visits are the parts of the backend that subjects use, for as long as their
// requests follow each other: what the audit log has as one connection. HTTP has
// no other.
type visits struct {
	server *Server

	mu      sync.Mutex
	open    map[visitKey]*visit
	closed  bool
	ticking bool
}

// visitKey says who visits from where, with which rights.
type visitKey struct {
	who, from, scopes string
	quotas            access.Quotas
	expires           time.Time
}

type visit struct {
	subject *access.Subject
	from    string
	backend spool.Backend
	seen    time.Time
}

// backend returns what the subject may use.
func (v *visits) backend(s *access.Subject, from string) spool.Backend {
	key := visitKey{who: s.Key(), from: from, quotas: s.Quotas, expires: s.Expires.UTC()}
	for _, scope := range s.Scopes {
		key.scopes += string(scope) + "\n"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if known, ok := v.open[key]; ok {
		known.seen = now
		return known.backend
	}
	guard := v.server.guard
	new := &visit{s, from, guard.Backend(s, from), now}
	if new.backend == v.server.backend || v.closed { // the owner without an audit log
		return new.backend
	}
	guard.Connected(s, from)
	v.open[key] = new
	if !v.ticking {
		v.ticking = true
		v.server.wg.Go(v.tick)
	}
	return new.backend
}

// tick ends visits after some silence, until there is none.
func (v *visits) tick() {
	ticker := time.NewTicker(v.server.limits.VisitFor / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-v.server.ctx.Done():
			return
		}
		if v.end(time.Now().Add(-v.server.limits.VisitFor)) {
			return
		}
	}
}

// end ends the visits that were silent since then, and reports whether none is
// left.
func (v *visits) end(since time.Time) bool {
	v.mu.Lock()
	var over []*visit
	for key, visit := range v.open {
		if !visit.seen.After(since) {
			over = append(over, visit)
			delete(v.open, key)
		}
	}
	v.ticking = len(v.open) > 0
	left := v.ticking
	v.mu.Unlock()
	for _, visit := range over {
		v.server.guard.Disconnected(visit.subject, visit.from, visit.backend, "")
	}
	return !left
}

// close ends all visits.
func (v *visits) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.end(time.Now().Add(time.Hour))
}
