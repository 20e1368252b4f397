package mcpapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/contain"
)

const (
	// maxSubscriptions is how many resources the clients of one server listen to.
	maxSubscriptions = 256
	// updateEvery is the default of [Options.Updates].
	updateEvery = time.Second
	// updateWait is how long one look at a run waits for its next event.
	updateWait = 55 * time.Second
)

// subscriptions are the resources that clients listen to: with subscriptions/listen, or
// with resources/subscribe if they are older. One reader per resource looks at its run.
type subscriptions struct {
	server *Server

	mu      sync.Mutex
	open    map[subscription]struct{}
	readers map[string]*updateReader // by URI
}

// subscription is one client that listens to one resource.
type subscription struct {
	session *mcp.ServerSession
	uri     string
}

// updateReader is the reader of a resource.
type updateReader struct {
	clients int
	cancel  context.CancelFunc
}

// subscribe has a client hear of a resource until it says otherwise or leaves.
func (s *subscriptions) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	key := subscription{req.Session, req.Params.URI}
	c := &call{Server: s.server, ctx: ctx}
	run, info, err := c.resourceRun(key.uri)
	if errors.Is(err, spool.ErrNotFound) {
		return mcp.ResourceNotFoundError(key.uri)
	}
	if err != nil {
		return fmt.Errorf("listen to %s: %w", key.uri, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[key]; ok {
		return nil
	}
	if len(s.open) >= maxSubscriptions {
		return fmt.Errorf("listen to %s: %w: there are %d subscriptions, which is the most", key.uri, spool.ErrBusy, maxSubscriptions)
	}
	s.open[key] = struct{}{}
	r := s.readers[key.uri]
	if r == nil {
		ctx, cancel := context.WithCancel(context.Background())
		r = &updateReader{cancel: cancel}
		s.readers[key.uri] = r
		go contain.Do(s.server.opts.Logger, "a subscription", func() { s.follow(ctx, key.uri, run, info.Last) })
	}
	r.clients++
	go func() {
		_ = key.session.Wait() // why it ended does not matter
		s.drop(key)
	}()
	return nil
}

// unsubscribe ends what subscribe began.
func (s *subscriptions) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.drop(subscription{req.Session, req.Params.URI})
	return nil
}

// drop forgets a subscription, if there is one.
func (s *subscriptions) drop(key subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[key]; !ok {
		return
	}
	delete(s.open, key)
	if r := s.readers[key.uri]; r.clients > 1 {
		r.clients--
	} else {
		r.cancel()
		delete(s.readers, key.uri)
	}
}

// follow tells clients when a run has changed, not too often, until its log is complete
// or nobody listens.
func (s *subscriptions) follow(ctx context.Context, uri string, run *spool.Run, last spool.Seq) {
	for ctx.Err() == nil {
		page, err := run.Read(ctx, spool.Query{After: last, MaxBytes: 1, Wait: updateWait})
		gone := errors.Is(err, spool.ErrNotFound)
		if gone || err == nil && page.Info.Last > last {
			if err := s.server.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				s.server.opts.Logger.Info("a client does not hear of a run", "uri", uri, "err", err)
			}
		}
		if gone || err == nil && page.Info.State == spool.StateClosed {
			return
		}
		if err == nil && page.Info.Last == last {
			continue
		}
		last = max(last, page.Info.Last)
		timer := time.NewTimer(s.server.opts.Updates)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
