package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// dropCut forgets a connection that was lost.
func (r *Router) dropCut(p *part) {
	if c, ok := p.backend.(connection); ok {
		r.peers.drop(p.node.Name, c)
	}
}

// told is what the watch of one node tells.
type told struct {
	info   spool.Info
	err    error
	synced bool // the node has told of all runs that there were
}

// Watch implements [spool.Watcher]: it merges what all nodes tell, also those that
// join meanwhile.
func (r *Router) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if r.isClosed() {
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		if err := f.CheckWatch(); err != nil {
			yield(spool.Info{}, err)
			return
		}
		wctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		news := make(chan told)
		watched := make(map[string]bool)
		begin := func(nodes []member) (begun int) {
			for _, n := range nodes {
				if watched[n.Name] {
					continue
				}
				watched[n.Name] = true
				begun++
				wg.Go(func() { r.watchNode(wctx, n.Name, f, news) })
			}
			return begun
		}
		nodes, changed := r.members.all()
		waiting := 1 + begin(append([]member{{nodeRecord: nodeRecord{Name: r.self}}}, nodes...))
		wg.Go(func() { r.watchQueue(wctx, f, news) })
		synced := false
		for {
			select {
			case t := <-news:
				switch {
				case t.synced:
					waiting--
				case !yield(t.info, t.err):
					return
				}
				if waiting == 0 && !synced {
					if synced = true; !yield(spool.Info{}, nil) {
						return
					}
				}
			case <-changed:
				nodes, changed = r.members.all()
				n := begin(nodes)
				if !synced {
					waiting += n
				}
			case <-ctx.Done():
				yield(spool.Info{}, context.Cause(ctx))
				return
			}
		}
	}
}

// watchEvery is how often changes of the queue are told.
const watchEvery = 250 * time.Millisecond

// watchQueue tells of the runs that wait in the queue until the context ends. Of those
// that start their nodes tell.
func (r *Router) watchQueue(ctx context.Context, f spool.Filter, news chan<- told) {
	seen := make(map[spool.RunID]bool)
	send := func(t told) bool {
		select {
		case news <- t:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for first := true; ctx.Err() == nil; first = false {
		infos, changed, err := r.queue.all(ctx, &f)
		if err != nil && first && !send(told{err: err}) {
			return
		}
		now := make(map[spool.RunID]bool, len(infos))
		for _, info := range infos {
			if now[info.ID] = true; !seen[info.ID] && !send(told{info: info}) {
				return
			}
		}
		for id := range seen {
			if info, never := r.queue.left(id); !now[id] && never && !send(told{info: info}) {
				return
			}
		}
		seen = now
		if first && !send(told{synced: true}) {
			return
		}
		pause(ctx, watchEvery, nil)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// watchNode watches a node until the context ends.
func (r *Router) watchNode(ctx context.Context, node string, f spool.Filter, news chan<- told) {
	send := func(t told) bool {
		select {
		case news <- t:
			return true
		case <-ctx.Done():
			return false
		}
	}
	first := true
	synced := func() bool {
		if !first {
			return true
		}
		first = false
		return send(told{synced: true})
	}
	complained := uint64(0) // the epoch for which the store was asked for its runs
	for ctx.Err() == nil && !r.isClosed() {
		changed := r.members.changes()
		n, _ := r.members.get(node)
		p := part{node: member{nodeRecord: nodeRecord{Name: node}}, backend: r.owner}
		if node != r.self {
			p = r.part(ctx, n)
		}
		switch {
		case p.err != nil:
			if first && ctx.Err() == nil && !send(told{err: p.err}) || !synced() {
				return
			}
		case p.backend == nil:
			if complained != n.Epoch {
				complained = n.Epoch
				for info, err := range r.list(ctx, &p, f) {
					if !send(told{info: info, err: err}) {
						return
					}
				}
			}
			if !synced() {
				return
			}
		default:
			if !r.watchPart(ctx, &p, f, send, synced) {
				return
			}
		}
		pause(ctx, retryEvery, changed)
	}
}

// watchPart passes on what a node tells. It reports false if the watch is over.
func (r *Router) watchPart(ctx context.Context, p *part, f spool.Filter, send func(told) bool, synced func() bool) bool {
	for info, err := range p.backend.Watch(ctx, f) {
		switch {
		case err != nil && ctx.Err() != nil:
			return false
		case err != nil && isCut(err):
			r.dropCut(p)
			return true
		case err != nil && errors.Is(err, spool.ErrUnsupported):
			err = fmt.Errorf("node %s: %w", p.node.Name, err)
			return send(told{err: err}) && synced()
		case err == nil && info.ID == "":
			if !synced() {
				return false
			}
			continue
		}
		if err == nil && info.State != spool.StateRemoved {
			info.Node = p.node.Name
		}
		if !send(told{info: info, err: err}) {
			return false
		}
	}
	return ctx.Err() == nil
}
