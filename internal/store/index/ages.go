package index

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Never is the time before which no entry ended: the rule of entries that stay.
const Never = math.MinInt64

// AgeRule gives the entries that have a term a time of their own.
type AgeRule struct {
	Term   Term
	Before int64 // in place of [AgeQuery.Before]
}

// AgeQuery selects entries by their ends.
type AgeQuery struct {
	Before int64 // ended before
	// Rules are about entries with certain terms. If several are about one
	// entry, the earliest time counts.
	Rules []AgeRule
	// After is the last entry of the answer before, or nil.
	After *Entry
	// Most is how many entries the answer has at most.
	Most int
}

// Ended returns the entries that a query selects, those that ended first, without
// their terms. Hashes decide which rules are about an entry.
func (s *Snapshot) Ended(q AgeQuery) []Entry {
	if q.Most <= 0 {
		return nil
	}
	type aged struct {
		Entry
		place
	}
	var old []aged
	id := func(a *aged) string {
		if a.seg != nil {
			return string(a.seg.id(a.row))
		}
		return a.ID
	}
	compare := func(a, b aged) int {
		if n := cmp.Compare(a.Ended, b.Ended); n != 0 {
			return n
		}
		return strings.Compare(id(&a), id(&b))
	}
	limit := s.limits(q.Rules, q.Before)
	bound := int64(math.MaxInt64) // what ended later is not in the answer
	latest := q.Before            // what ended then or later is not either
	for _, r := range q.Rules {
		latest = max(latest, r.Before)
	}
	take := func(e Entry, seg *segment, row int) {
		if e.Ended > bound || e.Ended >= limit(&e, seg, row) {
			return
		}
		a := aged{e, place{seg, row}}
		if q.After != nil && (e.Ended < q.After.Ended || e.Ended == q.After.Ended && id(&a) <= q.After.ID) {
			return
		}
		// Every time there are twice as many as wanted, the later half goes.
		if old = append(old, a); len(old) >= 2*q.Most {
			slices.SortFunc(old, compare)
			old = old[:q.Most]
			bound = old[q.Most-1].Ended
		}
	}
	masked := s.masked()
	for _, seg := range s.segments {
		// Most entries are too young, and this is all that is read of them.
		for row := range seg.rows {
			if seg.endedAt(row) >= latest || seg.isDead(row) || len(masked) > 0 && masked[place{seg, row}] {
				continue
			}
			take(seg.fixed(row), seg, row)
		}
	}
	for _, e := range s.newest {
		take(*e, nil, 0)
	}
	slices.SortFunc(old, compare)
	entries := make([]Entry, 0, min(q.Most, len(old)))
	for _, a := range old[:min(q.Most, len(old))] {
		a.ID = id(&a)
		entries = append(entries, a.Entry)
	}
	return entries
}

// Totals are sums over all entries.
type Totals struct {
	Runs   int
	Exempt int // runs that rules keep whatever their age
	Bytes  int64
	Raw    int64
	// Oldest is when the oldest run was created, or the highest time.
	Oldest int64
}

// Totals returns sums over all entries. Rules say which are exempt.
func (s *Snapshot) Totals(rules []AgeRule) Totals {
	t := Totals{Oldest: math.MaxInt64}
	masked := s.masked()
	special := s.special(rules)
	for _, seg := range s.segments {
		for row := range seg.rows {
			if seg.isDead(row) || len(masked) > 0 && masked[place{seg, row}] {
				continue
			}
			t.Runs++
			t.Bytes += seg.bytesAt(row)
			t.Raw += seg.rawAt(row)
			t.Oldest = min(t.Oldest, seg.createdAt(row))
		}
		for row, before := range special[seg] {
			if row < seg.rows && before == Never && !seg.isDead(row) && !masked[place{seg, row}] {
				t.Exempt++
			}
		}
	}
	for _, e := range s.newest {
		t.Runs++
		t.Bytes += e.Bytes
		t.Raw += e.Raw
		t.Oldest = min(t.Oldest, e.Created)
		if len(rules) > 0 && LimitOf(e.Terms, rules, 0) == Never {
			t.Exempt++
		}
	}
	return t
}

// limits returns a function that returns the time which rules give an entry.
func (s *Snapshot) limits(rules []AgeRule, before int64) func(e *Entry, seg *segment, row int) int64 {
	if len(rules) == 0 {
		return func(*Entry, *segment, int) int64 { return before }
	}
	special := s.special(rules)
	return func(e *Entry, seg *segment, row int) int64 {
		if seg != nil {
			if b, ok := special[seg][row]; ok {
				return b
			}
			return before
		}
		return LimitOf(e.Terms, rules, before)
	}
}

// special returns the times which rules give the rows of segments.
func (s *Snapshot) special(rules []AgeRule) map[*segment]map[int]int64 {
	special := make(map[*segment]map[int]int64)
	for _, seg := range s.segments {
		rows := make(map[int]int64)
		for _, r := range rules {
			p := seg.postings(r.Term)
			for i := range len(p) / 8 {
				row := posting(p, i)
				if b, ok := rows[row]; !ok || r.Before < b {
					rows[row] = r.Before
				}
			}
		}
		if len(rows) > 0 {
			special[seg] = rows
		}
	}
	return special
}

// LimitOf returns the time which rules give an entry with these terms.
func LimitOf(terms []Term, rules []AgeRule, before int64) int64 {
	found := false
	for _, r := range rules {
		if slices.Contains(terms, r.Term) && (!found || r.Before < before) {
			found, before = true, r.Before
		}
	}
	return before
}
