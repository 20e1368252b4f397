package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// maxLease bounds how long runs stay for a server that does not come back.
const maxLease = 24 * time.Hour

// lease ties the runs with a label to the server that holds it: when that
// server is gone and no other took the lease over in time, the runs end. So a
// crashed server does not leave work behind for ever, and one that restarts
// finds it.
type lease struct {
	holder *conn // nil while nobody holds it
	ttl    time.Duration
	expiry *time.Timer
}

func (c *conn) lease(method string, p leaseParams) (any, error) {
	s := c.server
	if p.Label.Key == "" {
		return nil, fmt.Errorf("%w: a lease needs a label", spool.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[p.Label]
	switch method {
	case methodLeased:
		return leasedResult{ok}, nil
	case methodRelease:
		if ok && l.expiry != nil {
			l.expiry.Stop()
		}
		delete(s.leases, p.Label)
		return struct{}{}, nil
	}
	if !ok {
		l = new(lease)
		s.leases[p.Label] = l
	}
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
	l.holder, l.ttl = c, time.Duration(max(0, min(p.TTLMs, maxLease.Milliseconds())))*time.Millisecond
	return struct{}{}, nil
}

// dropLeases starts the expiry of what a lost connection held.
func (s *server) dropLeases(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for label, l := range s.leases {
		if l.holder == c {
			l.holder = nil
			l.expiry = time.AfterFunc(l.ttl, func() { s.expire(label, l) })
		}
	}
}

// expire ends the runs of a lease that nobody took over.
func (s *server) expire(label spool.Label, l *lease) {
	s.mu.Lock()
	if s.leases[label] != l || l.holder != nil {
		s.mu.Unlock()
		return // taken in the last moment
	}
	delete(s.leases, label)
	s.mu.Unlock()
	s.host.KillLabelled(context.Background(), label)
	s.look()
}

// endLeases stops what is still waiting to expire.
func (s *server) endLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if l.expiry != nil {
			l.expiry.Stop()
		}
	}
}
