package access

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

const (
	// TicketFor is how long a ticket is valid. It has no flag: a page uses a ticket at
	// once.
	TicketFor = time.Minute
	// MaxTickets is how many tickets there are at once. A further one takes the
	// place of the oldest.
	MaxTickets = 4096
)

// Tickets are addresses that a browser can use where it sends no key: for downloads,
// frames and event sources. Each is for one address and one session, whose cookie must
// come along, and is valid once. They are in memory alone, and only as digests.
type Tickets struct {
	sessions *Sessions
	now      func() time.Time

	mu    sync.Mutex
	all   map[[sha256.Size]byte]*ticket
	order [][sha256.Size]byte // the oldest first; some may be gone
}

type ticket struct {
	session string
	target  string
	expires time.Time // zero means with the session, and as often as needed
}

// NewTickets returns no tickets yet.
func NewTickets(s *Sessions) *Tickets {
	return &Tickets{sessions: s, now: time.Now, all: make(map[[sha256.Size]byte]*ticket)}
}

// Make makes a ticket for an address. A ticket for a stream lasts as long as the
// session, because a browser comes back to a stream that was cut.
func (t *Tickets) Make(s *Subject, target string, stream bool) (text string, expires time.Time, err error) {
	if s.session == "" {
		return "", time.Time{}, fmt.Errorf("make a ticket: %w: only pages need tickets; programs send their token", spool.ErrUnsupported)
	}
	one := &ticket{session: s.session, target: target}
	if !stream {
		one.expires = t.now().Add(TicketFor)
	}
	text = randomText(secretSize)
	digest := sha256.Sum256([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.order) >= MaxTickets {
		delete(t.all, t.order[0])
		t.order = t.order[1:]
	}
	t.all[digest], t.order = one, append(t.order, digest)
	return text, one.expires, nil
}

// Use returns the subject and the address of a ticket. The error is a [*Refusal].
func (t *Tickets) Use(r *http.Request, text string) (*Subject, string, error) {
	digest := sha256.Sum256([]byte(text))
	t.mu.Lock()
	one := t.all[digest]
	t.mu.Unlock()
	if one == nil {
		return nil, "", errInvalid
	}
	subject, err := t.sessions.byCookie(r, one.session)
	if err != nil { // it stays: somebody else may have seen the address
		return nil, "", err
	}
	if one.expires.IsZero() {
		return subject, one.target, nil
	}
	t.mu.Lock()
	_, left := t.all[digest]
	delete(t.all, digest)
	t.mu.Unlock()
	switch {
	case !left: // another request was faster
		return nil, "", errInvalid
	case !t.now().Before(one.expires):
		return nil, "", errExpired
	}
	return subject, one.target, nil
}
