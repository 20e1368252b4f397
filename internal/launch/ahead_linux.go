package launch

import (
	"slices"
	"sync"
)

// ahead are the groups that are made before a start needs them: the kernel takes
// longer to make one than to start a process in it.
type ahead struct {
	count   int  // free groups when no more are made; zero makes none ahead
	needed  bool // a start found no free group: there is more than one tree at a time
	limit   int  // of processes, of the last start: the next is likely the same
	filling bool // a goroutine makes groups
	wg      sync.WaitGroup
}

// prepare has groups made ahead until that many are free, once a start needs them.
func (g *groups) prepare(count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ahead.count = max(g.ahead.count, count)
}

// fill makes groups in the background if few are free. Many are made at once,
// because a start waits while the kernel makes one. The caller holds g.mu.
func (g *groups) fill() {
	a := &g.ahead
	if !a.needed || a.filling || g.closed || len(g.free) >= (a.count+1)/2 {
		return
	}
	a.filling = true
	a.wg.Go(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for len(g.free) < a.count && !g.closed {
			limit := a.limit
			g.mu.Unlock()
			s, err := g.makeAhead(limit)
			g.mu.Lock()
			if err != nil {
				break // the start that finds no group makes its own, and learns the reason
			}
			// Those in use lately come first, and only their files stay open.
			g.free = slices.Insert(g.free, 0, s)
		}
		a.filling = false
	})
}

// makeAhead makes a group with a limit of processes.
func (g *groups) makeAhead(limit int) (*slot, error) {
	s, err := g.makeSlot()
	if err != nil {
		return nil, err
	}
	if limit > 0 && g.limitsPids() {
		if err := s.setLimit(g.limitFile(s), limit); err != nil {
			s.remove()
			return nil, err
		}
	}
	return s, nil
}
