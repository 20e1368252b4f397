package store

import (
	"sort"

	"github.com/spool-run/spool"
)

// indexStep is the approximate distance between the points of an offsets map.
const indexStep = 64 << 10

// point is a position in a segment: the next event at or after off has this seq.
type point struct {
	seq spool.Seq
	off int64
}

// offsets is a sparse map from seq to offset. It only grows at its end, while
// records are written or read.
type offsets struct {
	points []point
}

// add adds a point if it is far enough from the last one.
func (x *offsets) add(p point) {
	last := int64(0)
	if n := len(x.points); n > 0 {
		last = x.points[n-1].off
	}
	if p.off >= last+indexStep {
		x.points = append(x.points, p)
	}
}

// floor returns the last point at or before an event.
func (x *offsets) floor(seq spool.Seq) (point, bool) {
	i := sort.Search(len(x.points), func(i int) bool { return x.points[i].seq > seq })
	if i == 0 {
		return point{}, false
	}
	return x.points[i-1], true
}
