package eventlog

import (
	"sync"

	"github.com/spool-run/spool"
)

// Pages of the tier are kept when many readers are behind: they come by the
// same places one after the other, and the first need be the only one to read.
const (
	sharedBy  = crowdSize // followers that make it worth while
	keptPages = 192       // of followPage each, 48 MiB for the whole crowd
)

// pages are the stretches of the tier that were read last, by their first seq.
// Readers who took the same page ask for the next one by the same seq.
type pages struct {
	fetch sync.Mutex // held by the one who reads the tier; comes before mu

	mu     sync.RWMutex
	byHead map[spool.Seq][]spool.Event
	order  []spool.Seq // oldest first
}

// find returns what is kept from a seq on, or nothing.
func (p *pages) find(seq spool.Seq) []spool.Event {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byHead[seq]
}

// keep takes a page in place of the oldest.
func (p *pages) keep(page []spool.Event) {
	if len(page) == 0 || page[0].Kind == spool.KindTruncated {
		return // what is gone may be told differently next time
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	head := page[0].Seq
	if _, ok := p.byHead[head]; ok {
		return
	}
	if p.byHead == nil {
		p.byHead = make(map[spool.Seq][]spool.Event, keptPages)
	}
	if len(p.order) == keptPages {
		delete(p.byHead, p.order[0])
		p.order = p.order[1:]
	}
	p.byHead[head] = page
	p.order = append(p.order, head)
}
