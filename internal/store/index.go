package store

import (
	"sort"

	"github.com/spool-run/spool"
)

// indexStep is about how far apart the points of an index are.
const indexStep = 64 << 10

// point is a place in a segment: the next event at or after off has this seq.
type point struct {
	seq spool.Seq
	off int64
}

// index is a sparse map from seq to offset. It grows at its end only, as
// records are written or walked over.
type index struct {
	points []point
}

// add takes note of a point if it is far enough beyond those it has.
func (x *index) add(p point) {
	last := int64(0)
	if n := len(x.points); n > 0 {
		last = x.points[n-1].off
	}
	if p.off >= last+indexStep {
		x.points = append(x.points, p)
	}
}

// floor returns the last point at or before an event.
func (x *index) floor(seq spool.Seq) (point, bool) {
	i := sort.Search(len(x.points), func(i int) bool { return x.points[i].seq > seq })
	if i == 0 {
		return point{}, false
	}
	return x.points[i-1], true
}
