package index

import "slices"

// Sum is what some entries have together.
type Sum struct {
	Runs  int
	Bytes int64
	Raw   int64
}

func (s *Sum) add(e *Entry) {
	s.Runs++
	s.Bytes += e.Bytes
	s.Raw += e.Raw
}

// Namer returns the name of the group of an entry, which it finds elsewhere, and
// the term that all entries of the group have. It reports false for an entry that
// does not exist any more.
type Namer func(e *Entry) (name string, term Term, ok bool)

// GroupBy divides the entries that have a term, or with nil all, into groups. It
// asks for the name of each group once: so it costs what its answer costs.
func (s *Snapshot) GroupBy(within *Term, name Namer) map[string]Sum {
	groups := make(map[string]Sum)
	left := make(map[*segment][]bool) // rows that are in no group yet
	s.each(func(_ *Entry, seg *segment, row int) {
		if seg == nil {
			return
		}
		if left[seg] == nil {
			left[seg] = make([]bool, seg.rows)
		}
		left[seg][row] = within == nil
	})
	if within != nil {
		masked := s.masked()
		for _, seg := range s.segments {
			p := seg.postings(*within)
			for i := range len(p) / 8 {
				if row := posting(p, i); row < seg.rows && left[seg] != nil && !seg.isDead(row) && !masked[place{seg, row}] {
					left[seg][row] = true
				}
			}
		}
	}
	newest := slices.Clone(s.newest)
	if within != nil {
		newest = slices.DeleteFunc(newest, func(e *Entry) bool { return !slices.Contains(e.Terms, *within) })
	}
	// take moves the entries with a term to the sum.
	take := func(term Term) (sum Sum) {
		for _, seg := range s.segments {
			p := seg.postings(term)
			for i := range len(p) / 8 {
				if row := posting(p, i); row < len(left[seg]) && left[seg][row] {
					left[seg][row] = false
					e := Entry{Bytes: seg.bytesAt(row), Raw: seg.rawAt(row)}
					sum.add(&e)
				}
			}
		}
		newest = slices.DeleteFunc(newest, func(e *Entry) bool {
			has := slices.Contains(e.Terms, term)
			if has {
				sum.add(e)
			}
			return has
		})
		return sum
	}
	add := func(name string, sum Sum) {
		g := groups[name]
		g.Runs, g.Bytes, g.Raw = g.Runs+sum.Runs, g.Bytes+sum.Bytes, g.Raw+sum.Raw
		groups[name] = g
	}
	for _, seg := range s.segments {
		for row := range left[seg] {
			if !left[seg][row] {
				continue
			}
			e := seg.entry(row)
			if text, term, ok := name(&e); ok {
				add(text, take(term))
			}
			left[seg][row] = false // gone, or a hash of two meanings
		}
	}
	for len(newest) > 0 {
		e := newest[0]
		if text, term, ok := name(e); ok {
			add(text, take(term))
		}
		newest = slices.DeleteFunc(newest, func(other *Entry) bool { return other == e })
	}
	return groups
}

// GroupByDay divides the entries by the day on which they were created, as the
// number of days since 1970.
func (s *Snapshot) GroupByDay() map[int64]Sum {
	const day = 24 * 60 * 60 * 1e9
	groups := make(map[int64]Sum)
	s.each(func(e *Entry, _ *segment, _ int) {
		g := groups[e.Created/day]
		g.add(e)
		groups[e.Created/day] = g
	})
	return groups
}

// Size returns the size of the index on disk.
func (s *Snapshot) Size() (size int64) {
	for _, seg := range s.segments {
		size += int64(len(seg.data) + len(seg.dead))
	}
	return size + s.logSize
}
