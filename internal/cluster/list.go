package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/spool-run/spool"
)

// part is what one node contributes to an answer about all runs.
type part struct {
	node    member
	backend Backend // nil if the node is lost, or has left
	err     error   // why it cannot be asked
}

// parts returns all nodes that have runs. A node that does not answer and was not
// fenced has an error: it is never left out in silence.
func (r *Router) parts(ctx context.Context) []part {
	nodes, _ := r.members.all()
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n member) bool { return n.Name == r.self })
	parts := make([]part, len(nodes)+1)
	parts[len(nodes)] = part{node: member{nodeRecord: nodeRecord{Name: r.self}}, backend: r.owner}
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { parts[i] = r.part(ctx, n) })
	}
	wg.Wait()
	return parts
}

// part connects to a node.
func (r *Router) part(ctx context.Context, n member) part {
	if n.State == nodeGone {
		return part{node: n}
	}
	p, err := r.peers.get(ctx, n.Name)
	switch {
	case err == nil:
		return part{node: n, backend: p}
	case ctx.Err() != nil:
		return part{node: n, err: context.Cause(ctx)}
	case n.State == nodeLost:
		return part{node: n}
	}
	return part{node: n, err: fmt.Errorf("node %s does not answer, and its runs are missing: %w", n.Name, err)}
}

// list lists the runs of a node.
func (r *Router) list(ctx context.Context, p *part, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		switch {
		case p.err != nil:
			yield(spool.Info{}, p.err)
			return
		case p.backend == nil:
			r.listLost(ctx, &p.node, f, yield)
			return
		}
		for info, err := range p.backend.List(ctx, f) {
			if err == nil {
				info.Node = p.node.Name
			} else if isCut(err) && ctx.Err() == nil {
				r.dropCut(p)
				err = fmt.Errorf("node %s does not answer, and runs of it are missing: %w", p.node.Name, errors.New(err.Error()))
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// listLost lists the runs of a node that was fenced, or has left, as the store knows
// them.
func (r *Router) listLost(ctx context.Context, n *member, f spool.Filter, yield func(spool.Info, error) bool) {
	records, err := r.absent.of(ctx, n.Name)
	if err != nil {
		yield(spool.Info{}, fmt.Errorf("node %s is %s, and its runs are missing: %w", n.Name, n.State, err))
		return
	}
	var infos []spool.Info
	for _, rec := range records {
		lost := LostError{Run: rec.ID, Node: n.Name, Reason: n.reason(), info: rec.Info}
		if rec.Next != "" {
			lost.Reason += fmt.Sprintf("; run %s takes its place", rec.Next)
		}
		if info := lost.describe(); f.Match(&info) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b spool.Info) int { return f.Compare(&a, &b) })
	for _, info := range infos {
		if !yield(info, nil) {
			return
		}
	}
}

// source is the list of a node, of which the first run is known.
type source struct {
	next func() (spool.Info, error, bool)
	stop func()
	info spool.Info
	errs []error // that come before it
	over bool
}

// advance goes on to the next run.
func (s *source) advance() {
	for {
		info, err, ok := s.next()
		switch {
		case !ok:
			s.over = true
			return
		case err != nil:
			s.errs = append(s.errs, err)
		default:
			s.info = info
			return
		}
	}
}

// List implements [spool.Backend]: it merges the lists of all nodes.
func (r *Router) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if r.isClosed() {
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		if err := f.Check(); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		var sources []*source
		// A run that leaves the queue after this look is on its node after it, too.
		queued, _, queueErr := r.queue.all(ctx, &f)
		waits := make(map[spool.RunID]bool, len(queued))
		for _, info := range queued {
			waits[info.ID] = true
		}
		parts := r.parts(ctx)
		for i := range parts {
			s := new(source)
			s.next, s.stop = iter.Pull2(r.list(ctx, &parts[i], f))
			defer s.stop()
			sources = append(sources, s)
		}
		s := new(source)
		s.next, s.stop = iter.Pull2(listed(queued, queueErr))
		defer s.stop()
		sources = append(sources, s)
		var wg sync.WaitGroup
		for _, s := range sources {
			wg.Go(s.advance)
		}
		wg.Wait()
		last := spool.RunID("")
		twice := make(map[spool.RunID]bool) // those of the queue that were listed
		for n := 0; f.Limit == 0 || n < f.Limit; n++ {
			var first *source
			for _, s := range sources {
				for _, err := range s.errs {
					if !yield(spool.Info{}, err) {
						return
					}
				}
				s.errs = nil
				if !s.over && (first == nil || f.Compare(&s.info, &first.info) < 0) {
					first = s
				}
			}
			if first == nil {
				return
			}
			id := first.info.ID
			if id == last || twice[id] { // two nodes have it: from an archive; or it has just started
				first.advance()
				n--
				continue
			}
			if waits[id] {
				twice[id] = true
			}
			if last = id; !yield(first.info, nil) {
				return
			}
			if f.Limit == 0 || n+1 < f.Limit {
				first.advance()
			}
		}
	}
}

// listed yields runs, and an error before them if it is not nil.
func listed(infos []spool.Info, err error) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err != nil && !yield(spool.Info{}, err) {
			return
		}
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// each calls do for every node at once, and returns the errors.
func (r *Router) each(ctx context.Context, do func(*part) error) error {
	if r.isClosed() {
		return spool.ErrClosed
	}
	parts := r.parts(ctx)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			if errs[i] = parts[i].err; errs[i] == nil {
				errs[i] = do(&parts[i])
			}
			if isCut(errs[i]) && ctx.Err() == nil {
				r.dropCut(&parts[i])
				errs[i] = fmt.Errorf("node %s does not answer: %w", parts[i].node.Name, errors.New(errs[i].Error()))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Count implements [spool.Counter].
func (r *Router) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	f.Oldest, f.Limit, f.After = false, 0, ""
	var mu sync.Mutex
	counts := make(map[spool.State]int)
	add := func(state spool.State, n int) {
		mu.Lock()
		defer mu.Unlock()
		if n > 0 {
			counts[state] += n
		}
	}
	queued, _, queueErr := r.queue.all(ctx, &f)
	add(spool.StateQueued, len(queued))
	err := r.each(ctx, func(p *part) error {
		if p.backend == nil {
			for info, err := range r.list(ctx, p, f) {
				if err != nil {
					return err
				}
				add(info.State, 1)
			}
			return nil
		}
		some, err := p.backend.Count(ctx, f)
		for state, n := range some {
			add(state, n)
		}
		return err
	})
	return counts, errors.Join(queueErr, err)
}

// byNode groups runs by the nodes that have them.
func (r *Router) byNode(ctx context.Context, ids []spool.RunID) (map[string][]spool.RunID, error) {
	groups := make(map[string][]spool.RunID)
	for _, id := range ids {
		info, err := r.Stat(ctx, id)
		if err != nil {
			return nil, err
		}
		if info.State == spool.StateQueued {
			return nil, fmt.Errorf("run %s: %w: it has not ended", id, spool.ErrBusy)
		}
		if info.Node == "" {
			return nil, fmt.Errorf("run %s: %w on any node: only the archive has it, or it was never started", id, spool.ErrNotFound)
		}
		groups[info.Node] = append(groups[info.Node], id)
	}
	return groups, nil
}

// Remove implements [spool.Remover]. If the runs are on several nodes and one of the
// nodes fails, those of the others may be deleted.
func (r *Router) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	if r.isClosed() {
		return spool.Removal{}, spool.ErrClosed
	}
	groups, err := r.byNode(ctx, ids)
	if err != nil {
		return spool.Removal{}, err
	}
	remove := func(dry bool) (spool.Removal, error) {
		var all spool.Removal
		for _, node := range slices.Sorted(maps.Keys(groups)) {
			var some spool.Removal
			err := r.on(ctx, node, groups[node][0], patience, func(b Backend) (err error) {
				some, err = b.Remove(ctx, groups[node], dry)
				return err
			})
			all.Runs, all.Blobs, all.Bytes = append(all.Runs, some.Runs...), all.Blobs+some.Blobs, all.Bytes+some.Bytes
			if err != nil {
				return all, err
			}
		}
		return all, nil
	}
	if !dry && len(groups) > 1 { // all or none
		if _, err := remove(true); err != nil {
			return spool.Removal{}, err
		}
	}
	removal, err := remove(dry)
	if !dry {
		for _, id := range removal.Runs {
			r.forget(id)
		}
	}
	return removal, err
}

// Storage implements [spool.Remover].
func (r *Router) Storage(ctx context.Context) (spool.Storage, error) { return r.StorageBy(ctx, "") }

// StorageBy implements [spool.StorageGrouper].
func (r *Router) StorageBy(ctx context.Context, by string) (spool.Storage, error) {
	var mu sync.Mutex
	var all spool.Storage
	groups := make(map[string]spool.StorageGroup)
	err := r.each(ctx, func(p *part) error {
		if p.backend == nil {
			return nil // its disk is not there
		}
		var st spool.Storage
		var err error
		if by == "" {
			st, err = p.backend.Storage(ctx)
		} else {
			st, err = p.backend.StorageBy(ctx, by)
		}
		mu.Lock()
		defer mu.Unlock()
		addStorage(&all, &st)
		for _, g := range st.Groups {
			sum := groups[g.Name]
			groups[g.Name] = spool.StorageGroup{Name: g.Name, Runs: sum.Runs + g.Runs, Bytes: sum.Bytes + g.Bytes, RawBytes: sum.RawBytes + g.RawBytes}
		}
		return err
	})
	all.By = by
	if len(groups) > 0 {
		all.Groups = slices.SortedFunc(maps.Values(groups), func(a, b spool.StorageGroup) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
	}
	return all, err
}

func addStorage(all, st *spool.Storage) {
	all.LiveRuns += st.LiveRuns
	all.LiveBytes += st.LiveBytes
	all.FinishedRuns += st.FinishedRuns
	all.FinishedBytes += st.FinishedBytes
	all.Blobs += st.Blobs
	all.BlobBytes += st.BlobBytes
	all.FinishedRawBytes += st.FinishedRawBytes
	all.WorkspaceBytes += st.WorkspaceBytes
	all.IndexBytes += st.IndexBytes
}

// Measure implements [spool.Meter].
func (r *Router) Measure(ctx context.Context, ids []spool.RunID) ([]spool.Resources, error) {
	var mu sync.Mutex
	var all []spool.Resources
	measure := func(b Backend, ids []spool.RunID) error {
		some, err := b.Measure(ctx, ids)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
		return err
	}
	if len(ids) == 0 {
		err := r.each(ctx, func(p *part) error {
			if p.backend == nil {
				return nil
			}
			return measure(p.backend, nil)
		})
		return all, err
	}
	groups, err := r.byNode(ctx, ids)
	if err != nil {
		return nil, err
	}
	for node, of := range groups {
		if err := r.on(ctx, node, of[0], patience, func(b Backend) error { return measure(b, of) }); err != nil && !errors.Is(err, spool.ErrLost) {
			return all, err
		}
	}
	return all, nil
}
