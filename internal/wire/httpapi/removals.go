package httpapi

import (
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// RunRemoved names a run that was deleted through this server.
type RunRemoved struct {
	Run spool.RunID `json:"run"`
}

// removals tell those who watch runs which of them were deleted.
type removals struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

type listener struct {
	subject *access.Subject
	tell    func(spool.RunID)
}

// listen has a function called with each run that is deleted and that the subject could
// see, until the caller ends that. The function must not block.
func (r *removals) listen(s *access.Subject, tell func(spool.RunID)) (end func()) {
	l := &listener{s, tell}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil {
		r.listeners = make(map[*listener]struct{})
	}
	r.listeners[l] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, l)
	}
}

// tell tells of runs that a subject has deleted.
func (r *removals) tell(by *access.Subject, ids []spool.RunID) {
	r.mu.Lock()
	all := make([]*listener, 0, len(r.listeners))
	for l := range r.listeners {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		for _, id := range ids {
			if l.saw(by, id) {
				l.tell(id)
			}
		}
	}
}

// saw reports whether the subject of a listener could see a run that another one has
// deleted.
func (l *listener) saw(by *access.Subject, id spool.RunID) bool {
	switch s := l.subject; {
	case len(s.Runs) > 0:
		return slices.Contains(s.Runs, id)
	case len(s.Labels) > 0:
		return false // the labels of the run are gone
	default:
		return s.Scopes.Has(access.Admin) || s.Name == by.Name
	}
}
