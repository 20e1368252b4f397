package workspace

import (
	"cmp"
	"slices"

	"github.com/spool-run/spool"
)

// page is a page of changes that is being filled.
type page struct {
	spool.ChangePage
	room int // bytes that are left
}

func newPage(maxBytes int) *page {
	if maxBytes <= 0 || maxBytes > MaxPageBytes {
		maxBytes = MaxPageBytes
	}
	return &page{spool.ChangePage{Changes: []spool.Change{}}, maxBytes}
}

// full reports whether the next change is not added, but only counted.
func (p *page) full() bool { return len(p.Changes) > 0 && p.room <= 0 || len(p.Changes) >= MaxPage }

// add adds the next change, or counts it.
func (p *page) add(c spool.Change) {
	const fields = 160 // about the bytes of a change without its texts
	if p.full() || p.More > 0 {
		p.More++
		return
	}
	p.room -= fields + len(c.Path) + len(c.Base64) + len(c.Patch) + len(c.Conflict)
	p.Changes = append(p.Changes, c)
}

// firstOf returns the first page of changes. If they are more, those with a conflict
// come first.
func firstOf(list []spool.Change) spool.ChangePage {
	p := newPage(0)
	for _, c := range list {
		p.add(c)
	}
	if p.More == 0 {
		return p.ChangePage
	}
	slices.SortStableFunc(list, func(a, b spool.Change) int { return cmp.Compare(order(&a), order(&b)) })
	p = newPage(0)
	for _, c := range list {
		p.add(c)
	}
	return p.ChangePage
}

func order(c *spool.Change) int {
	if c.Conflict != "" {
		return 0
	}
	return 1
}
