package host

import (
	"sync"
	"time"
)

// noteAfter is the minimum age of a run when its pid is written to its log, and of
// a change of the size of its terminal; the maximum is twice that. Most runs end
// earlier, and their end contains both.
const noteAfter = 20 * time.Millisecond

// notes are the runs whose pid or size is not written yet. They share a timer, because
// a timer per run may wake a thread each time.
type notes struct {
	mu      sync.Mutex
	younger []*run // started after the timer was set
	older   []*run // started before
	timer   *time.Timer
	set     bool
}

func (n *notes) add(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.noting {
		return
	}
	r.noting = true
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

// tick writes the descriptions of the runs that are old enough.
func (n *notes) tick() {
	n.mu.Lock()
	due := n.older
	for _, r := range due {
		r.noting = false
	}
	n.older, n.younger = n.younger, nil
	if n.set = len(n.older) > 0; n.set {
		n.timer.Reset(noteAfter)
	}
	n.mu.Unlock()
	for _, r := range due {
		r.note()
	}
}

// stop drops all of them.
func (n *notes) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.younger, n.older, n.set = nil, nil, true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// note writes the description of the run as it is now.
func (r *run) note() {
	select {
	case <-r.done:
		return
	default:
	}
	r.mu.Lock()
	info := r.info
	r.mu.Unlock()
	info.Turn, info.Asks = 0, nil // they change often; only the host of a live run knows them
	_ = r.journal.Note(info)      // informational; the run works without it
}
