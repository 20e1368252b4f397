package httpapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

const (
	// guestsOfSubject is how many pages of one subject are at runs without a
	// connection that says so.
	guestsOfSubject = 64
	// guestFor is how long such a page is there after it said so.
	guestFor = 30 * time.Second
	// guestName is how long the name is that such a page gives itself.
	guestName = 64
)

// GuestRequest says that a page without a WebSocket is at a run for the next 30 seconds. An
// empty role ends that.
type GuestRequest struct {
	Page string `json:"page"` // what the page calls itself: a text that no other one has
	Role string `json:"role,omitempty"`
}

// guestKey names a page without a connection.
type guestKey struct {
	subject, page string
}

// guest is such a page; timer ends its visit.
type guest struct {
	*visitor
	timer *time.Timer
}

// putPresence notes that a page is at a run, and answers with who is there.
func (c *call) putPresence() error {
	var r GuestRequest
	if err := c.decode(&r, "presence"); err != nil {
		return err
	}
	if r.Page == "" || len(r.Page) > guestName {
		return problemf("invalid", "page is a text of 1 to %d bytes", guestName)
	}
	if err := checkRole(c.subject, r.Role); err != nil {
		return err
	}
	if _, err := c.backend.Stat(c.ctx, c.run()); err != nil {
		return err
	}
	v, err := c.server.presence.guest(c, r.Page)
	if err != nil {
		return err
	}
	now, err := v.at(c.run(), r.Role)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, now)
}

// checkRole reports whether a subject may be at a run in a role.
func checkRole(s *access.Subject, role string) error {
	switch role {
	case "", RoleView:
		return nil
	case RoleType:
		return s.Scopes.Require(access.Input)
	}
	return fmt.Errorf("%w: a role is view, type or nothing, not %.100q", spool.ErrInvalid, role)
}

// guest returns the visitor that a page without a connection is, for some more time.
func (p *presence) guest(c *call, page string) (*visitor, error) {
	key := guestKey{c.subject.String(), page}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.guests[key]; g != nil {
		g.timer.Reset(guestFor)
		return g.visitor, nil
	}
	others := 0
	for k := range p.guests {
		if k.subject == key.subject {
			others++
		}
	}
	if others >= guestsOfSubject {
		return nil, fmt.Errorf("presence: %w: %d pages are at runs already", spool.ErrBusy, others)
	}
	g := &guest{visitor: p.visitor(c, func(string, any) {})}
	if p.guests == nil {
		p.guests = make(map[guestKey]*guest)
	}
	p.guests[key] = g
	g.timer = time.AfterFunc(guestFor, func() {
		p.mu.Lock()
		if p.guests[key] == g {
			delete(p.guests, key)
		}
		p.mu.Unlock()
		g.leave()
	})
	return g.visitor, nil
}

// dismiss ends the visits of all pages without a connection.
func (p *presence) dismiss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.guests {
		g.timer.Stop()
	}
	clear(p.guests)
}
