package cluster

import (
	"cmp"
	"slices"
)

// turn is a subject that has runs waiting for the nodes of a pool.
type turn struct{ pool, subject string }

// line is runs of one subject that wait for the same nodes.
type line struct {
	turn
	node string // the only one on which they start; empty for all of the pool
}

// order is who is served next. Subjects take turns, whatever number of runs each of
// them has waiting; among the runs of one subject the priority decides, and then the
// age.
type order struct {
	// served is how many runs of each subject have started. A subject that begins to
	// wait has as many as the one that is served next: it is not paid back for the
	// time in which it asked for nothing.
	served map[turn]uint64
	// lines are the runs that wait, each in the order in which they start.
	lines map[line][]*waiting
}

// before orders the runs of one subject.
func (w *waiting) before(other *waiting) int {
	return cmp.Or(cmp.Compare(other.priority, w.priority), cmp.Compare(w.rev, other.rev))
}

// line is where a run waits.
func (w *waiting) line() line { return line{w.turn(), w.node} }

// add has a run wait. It begins the turns of its subject, if none of its runs waits yet.
func (o *order) add(w *waiting) {
	t, l := w.turn(), w.line()
	least, any, known := uint64(0), false, false
	for other := range o.lines {
		if known = other.turn == t; known {
			break
		}
		if n := o.served[other.turn]; other.pool == t.pool && (!any || n < least) {
			least, any = n, true
		}
	}
	if len(o.lines) == 0 {
		clear(o.served) // nobody compares
	}
	if !known {
		o.served[t] = max(o.served[t], least)
	}
	at, _ := slices.BinarySearchFunc(o.lines[l], w, (*waiting).before)
	o.lines[l] = slices.Insert(o.lines[l], at, w)
}

// remove has a run wait no more.
func (o *order) remove(w *waiting) {
	l := w.line()
	if at, ok := slices.BinarySearchFunc(o.lines[l], w, (*waiting).before); ok {
		o.lines[l] = slices.Delete(o.lines[l], at, at+1)
	}
	if len(o.lines[l]) == 0 {
		delete(o.lines, l)
	}
}

// next returns the run that starts next: of those that may, in the lines that are
// ours. It returns nil if there is none.
func (o *order) next(ours func(line) bool, may func(*waiting) bool) *waiting {
	var first *waiting
	for l, all := range o.lines {
		if !ours(l) || first != nil && o.served[l.turn] > o.served[first.turn()] {
			continue
		}
		i := slices.IndexFunc(all, may)
		if i < 0 {
			continue
		}
		switch w := all[i]; {
		case first == nil, o.served[l.turn] < o.served[first.turn()]:
			first = w
		case l.turn == first.turn():
			if w.before(first) < 0 {
				first = w
			}
		case w.rev < first.rev:
			first = w
		}
	}
	return first
}
