package access

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/spool-run/spool"
)

// Guard gives every subject its part of a backend. It is safe for concurrent use.
type Guard struct {
	backend spool.Backend
	audit   *Audit // nil without one

	uncounted atomic.Int64 // refusals that are not in the audit log yet

	mu       sync.Mutex
	accounts map[string]*account // by name of the subject; only of those with quotas
}

// NewGuard returns a guard of a backend. The audit log may be nil.
func NewGuard(b spool.Backend, audit *Audit) *Guard {
	return &Guard{backend: b, audit: audit, accounts: make(map[string]*account)}
}

// Backend returns what a subject, connected from an address, may use of the
// backend. For the owner without an audit log that is the backend itself.
//
// Another subject's run is [spool.ErrNotFound] in every method. A missing scope
// is [spool.ErrDenied], before anything else. A quota is [spool.ErrBusy] if it
// frees up by itself, and otherwise [spool.ErrDenied].
func (g *Guard) Backend(s *Subject, from string) spool.Backend {
	if s.IsOwner() && g.audit == nil {
		return g.backend
	}
	return &backend{guard: g, inner: g.backend, subject: s, from: from, account: g.account(s),
		read: make(map[spool.RunID]bool), typed: make(map[spool.RunID]int64), blobs: make(map[blobOf]bool)}
}

// Connected writes the beginning of a connection to the audit log.
func (g *Guard) Connected(s *Subject, from string) {
	_ = g.audit.write(Entry{Act: ActConnect, Subject: s.String(), From: from})
}

// Disconnected writes the end of a connection to the audit log. The backend is
// that of [Guard.Backend], and the reason is empty if the client left.
func (g *Guard) Disconnected(s *Subject, from string, used spool.Backend, reason string) {
	if b, ok := used.(*backend); ok {
		b.noteTyped()
	}
	_ = g.audit.write(Entry{Act: ActDisconnect, Subject: s.String(), From: from, Reason: reason})
}

// Note writes what a subject did, that its backend does not know of, to the audit
// log.
func (g *Guard) Note(s *Subject, from string, e Entry) {
	e.Subject, e.From = s.String(), from
	_ = g.audit.write(e)
}

// Denied writes a refusal to the audit log. Many refusals of one source are only
// counted.
func (g *Guard) Denied(s *Subject, from, act string, err error) {
	if g.audit == nil {
		return
	}
	e := Entry{Act: ActDenied, From: from, What: act, Reason: reason(err)}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if refusal.repeated {
			g.uncounted.Add(1)
			return
		}
		e.Reason = refusal.Text
		e.Count = int(g.uncounted.Swap(0))
	}
	if s != nil {
		e.Subject = s.String()
	}
	_ = g.audit.write(e)
}

// account returns the account of a subject with quotas.
func (g *Guard) account(s *Subject) *account {
	if s.Quotas == (Quotas{}) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.accounts[s.Name]
	if !ok {
		a = new(account)
		g.accounts[s.Name] = a
	}
	return a
}
