package host

import (
	"sync"
	"time"
)

// noteAfter is how old a run is at least when its pid is written down; it is
// twice that at most. Most are over by then, and say it at their end.
const noteAfter = 20 * time.Millisecond

// notes are the runs whose pid is yet to be written down. They share a timer:
// to set one for every run may wake a thread each time.
type notes struct {
	mu      sync.Mutex
	younger []*run // started since the timer was set
	older   []*run // before that
	timer   *time.Timer
	set     bool
}

func (n *notes) add(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.younger = append(n.younger, r)
	if n.set {
		return
	}
	n.set = true
	if n.timer == nil {
		n.timer = time.AfterFunc(noteAfter, n.tick)
	} else {
		n.timer.Reset(noteAfter)
	}
}

// tick writes down what is known of those that are old enough.
func (n *notes) tick() {
	n.mu.Lock()
	due := n.older
	n.older, n.younger = n.younger, nil
	if n.set = len(n.older) > 0; n.set {
		n.timer.Reset(noteAfter)
	}
	n.mu.Unlock()
	for _, r := range due {
		r.note()
	}
}

// stop forgets them all.
func (n *notes) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.younger, n.older, n.set = nil, nil, true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// note writes down what is known since the start.
func (r *run) note() {
	select {
	case <-r.done:
		return
	default:
	}
	r.mu.Lock()
	info := r.info
	r.mu.Unlock()
	_ = r.journal.Note(info) // it helps people; the run works without
}
