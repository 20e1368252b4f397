package eventlog

import (
	"sync"

	"github.com/spool-run/spool"
)

// keptPages is the number of pages that a crowd shares. With crowdPage bytes
// each, that is 48 MiB.
const keptPages = 24

// pages are the last pages that followers of a crowd have read from the tier.
// Followers that are behind need the same pages one after the other; only the
// first of them reads the tier.
type pages struct {
	fetch sync.Mutex // held while the tier is read; comes before mu

	mu   sync.RWMutex
	kept [][]spool.Event // oldest first
}

// find returns the events of a kept page from a seq on, or nil.
func (p *pages) find(seq spool.Seq) []spool.Event {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for i := len(p.kept) - 1; i >= 0; i-- {
		page := p.kept[i]
		if first := page[0].Seq; seq >= first && seq <= page[len(page)-1].Seq {
			return page[seq-first:]
		}
	}
	return nil
}

// keep adds a page in place of the oldest.
func (p *pages) keep(page []spool.Event) {
	for i := range page {
		if page[i].Kind == spool.KindTruncated {
			return // the extent of a gap may change
		}
	}
	if len(page) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == keptPages {
		p.kept = p.kept[1:]
	}
	p.kept = append(p.kept, page)
}
