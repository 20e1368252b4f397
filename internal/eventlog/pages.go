package eventlog

import (
	"sync"

	"github.com/spool-run/spool"
)

// Pages of the tier are kept when many readers are behind: they come by the
// same places one after the other, and the first need be the only one to read.
const keptPages = 24 // of crowdPage each, 48 MiB for the whole crowd

// pages are the stretches of the tier that were read last.
type pages struct {
	fetch sync.Mutex // held by the one who reads the tier; comes before mu

	mu   sync.RWMutex
	kept [][]spool.Event // oldest first
}

// find returns what is kept from a seq on, or nothing.
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

// keep takes a page in place of the oldest.
func (p *pages) keep(page []spool.Event) {
	for i := range page {
		if page[i].Kind == spool.KindTruncated {
			return // what is gone may be told differently next time
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
