package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// maxLease is the longest time that runs stay for a server that does not come
// back.
const maxLease = 24 * time.Hour

// lease ties the runs with a label to the server that holds it: the runs end
// when that server is gone and no other has taken the lease in time. So a server
// that crashes does not leave runs behind for ever, and one that restarts finds
// them.
type lease struct {
	holder *serverConn // nil while no connection holds it
	ttl    time.Duration
	expiry *time.Timer
}

func (c *serverConn) lease(method string, p leaseParams) (any, error) {
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

// dropLeases starts the expiry of the leases of a lost connection.
func (s *server) dropLeases(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, l := range s.leases {
		if l.holder == c {
			l.holder = nil
			l.expiry = time.AfterFunc(l.ttl, func() { s.expire(of, l) })
		}
	}
}

// expire ends the runs of a lease that no server has taken.
func (s *server) expire(of label, l *lease) {
	s.mu.Lock()
	if s.leases[of] != l || l.holder != nil {
		s.mu.Unlock()
		return // a server took it meanwhile
	}
	delete(s.leases, of)
	s.mu.Unlock()
	s.host.KillLabelled(context.Background(), of.Key, of.Value)
	s.checkIdle()
}

// hold has the runs with a label end after some time, unless it is said again before: a
// server that hangs keeps its connection, and with it a lease, for ever.
type hold struct {
	expiry *time.Timer
	over   bool
}

// hold begins a hold, or goes on with it.
func (s *server) hold(p leaseParams) error {
	if p.Label.Key == "" {
		return fmt.Errorf("%w: a hold needs a label", spool.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds[p.Label]; h != nil {
		h.expiry.Stop()
	}
	h := new(hold)
	ttl := time.Duration(max(0, min(p.TTLMs, maxLease.Milliseconds()))) * time.Millisecond
	h.expiry = time.AfterFunc(ttl, func() {
		s.mu.Lock()
		h.over = true
		s.mu.Unlock()
		s.host.KillLabelled(context.Background(), p.Label.Key, p.Label.Value)
		s.checkIdle()
	})
	s.holds[p.Label] = h
	return nil
}

// isOver reports whether a hold of one of the labels is over.
func (s *server) isOver(labels map[string]string) (of label, over bool) {
	if len(labels) == 0 {
		return label{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, h := range s.holds {
		if h.over && labels[of.Key] == of.Value {
			return of, true
		}
	}
	return label{}, false
}

// start starts a run, unless it would have to end at once.
func (s *server) start(spec spool.Spec) (spool.Info, error) {
	refused := func(of label) (spool.Info, error) {
		return spool.Info{}, fmt.Errorf("%w: the hold of the label %s=%s is over", spool.ErrBusy, of.Key, of.Value)
	}
	if of, over := s.isOver(spec.Labels); over {
		return refused(of)
	}
	info, err := s.host.Start(s.ctx, spec)
	if of, over := s.isOver(spec.Labels); err == nil && over { // while it started
		s.host.KillLabelled(context.Background(), of.Key, of.Value)
		return refused(of)
	}
	return info, err
}

// endLeases stops the expiry of all leases.
func (s *server) endLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		h.expiry.Stop()
	}
	for _, l := range s.leases {
		if l.expiry != nil {
			l.expiry.Stop()
		}
	}
}

// Lease has the runs with a label end once this process is gone and no other
// process has taken the lease for the duration ttl. It asks every keeper, because
// each may have such runs.
func (b *Backend) Lease(ctx context.Context, key, value string, ttl time.Duration) error {
	if _, err := b.ownKeeper(ctx); err != nil {
		return err
	}
	_, err := b.callAll(ctx, methodLease, leaseParams{label{key, value}, ttl.Milliseconds()}, nil)
	return err
}

// Hold has the runs with a label end after the duration ttl, unless it is called again
// before, whether this process lives or not.
func (b *Backend) Hold(ctx context.Context, key, value string, ttl time.Duration) error {
	if _, err := b.ownKeeper(ctx); err != nil {
		return err
	}
	_, err := b.callAll(ctx, methodHold, leaseParams{label{key, value}, ttl.Milliseconds()}, nil)
	return err
}

// Leased reports whether a keeper has the lease of a label.
func (b *Backend) Leased(ctx context.Context, key, value string) (bool, error) {
	found := false
	_, err := b.callAll(ctx, methodLeased, leaseParams{Label: label{key, value}}, func(raw json.RawMessage) {
		var r leasedResult
		found = json.Unmarshal(raw, &r) == nil && r.Leased || found
	})
	return found, err
}

// Release ends a lease. The runs with its label go on.
func (b *Backend) Release(ctx context.Context, key, value string) error {
	_, err := b.callAll(ctx, methodRelease, leaseParams{Label: label{key, value}}, nil)
	return err
}
