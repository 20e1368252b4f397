package lens

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

const (
	// pointBytes is how much output is between two points of an index, and
	// pointTime how much time if there is less output.
	pointBytes = 256 << 10
	pointTime  = 250 * time.Millisecond
	// indexPoints is how many points an index has; with more, every second is
	// dropped and the rest are twice as far apart.
	indexPoints = 64 << 10
	// shownPoints is how many points [Lens.Index] returns.
	shownPoints = 2000
	// shownMarks is how many marks an index has; with more, every second is
	// dropped.
	shownMarks = 2000
)

// Point is a place in a log: just before an event.
type Point struct {
	Seq   spool.Seq // of that event
	Time  time.Time // of that event
	Bytes int64     // of output before it
	Lines int64     // that ended before it
}

// Index says where in a log its output is.
type Index struct {
	Points []Point // at most 2,000, evenly thinned
	First  spool.Seq
	Last   spool.Seq // up to which the log was read
	End    time.Time // of that event
	Bytes  int64     // of output up to there
	Lines  int64     // up to there, with one that has no end
	Marks  []Mark    // at most 2,000
	// Complete is whether all events that the log had were read, or all that
	// can be.
	Complete bool
	// DamagedFrom is the first event that cannot be read, nor any after it,
	// because the log is damaged. Zero means that it is not, as far as it was
	// read.
	DamagedFrom spool.Seq
}

// place is a point and the state of the lines there.
type place struct {
	Point
	counter
}

// counter counts lines. A line ends at a newline, or where another stream goes on in
// the middle of it: two streams never share a line.
type counter struct {
	bytes  int64
	lines  int64        // that have ended
	open   bool         // the last one has no end
	stream spool.Stream // of the last output
	broken streamSet    // whose last line was ended by another stream
}

// streamSet is a set of streams.
type streamSet uint8

func bit(s spool.Stream) streamSet {
	switch s {
	case spool.Stdout:
		return 1
	case spool.Stderr:
		return 2
	case spool.PTY:
		return 4
	}
	return 8
}

// begun is how many lines have begun.
func (c *counter) begun() int64 {
	if c.open {
		return c.lines + 1
	}
	return c.lines
}

// enter prepares for the output of a stream and reports whether that ended a line of
// another.
func (c *counter) enter(s spool.Stream) (ended bool) {
	if ended = c.open && s != c.stream; ended {
		c.lines++
		c.open = false
		c.broken |= bit(c.stream)
	}
	c.stream = s
	return ended
}

// add counts an output event.
func (c *counter) add(e *spool.Event) {
	if len(e.Bytes) == 0 {
		return
	}
	c.enter(e.Stream)
	c.bytes += int64(len(e.Bytes))
	if n := bytes.Count(e.Bytes, newline); n > 0 {
		c.lines += int64(n)
		c.broken &^= bit(e.Stream)
	}
	c.open = e.Bytes[len(e.Bytes)-1] != '\n'
}

var newline = []byte("\n")

// resized is a change of the size of the terminal.
type resized struct {
	seq  spool.Seq
	size spool.Size
}

// index is the index of one log, up to some event.
type index struct {
	counter
	places []place
	sizes  []resized
	marks  []Mark
	step   int64         // bytes between two places
	pause  time.Duration // time between two places
	first  spool.Seq
	last   spool.Seq
	end    time.Time // of the last
}

func newIndex() index { return index{step: pointBytes, pause: pointTime} }

// add reads on by one event.
func (x *index) add(e *spool.Event) {
	if x.first == 0 {
		x.first = e.Seq
	}
	x.last, x.end = e.Seq, e.Time
	if n := len(x.places); n == 0 || x.bytes-x.places[n-1].Bytes >= x.step || e.Time.Sub(x.places[n-1].Time) >= x.pause {
		x.place(e)
	}
	if m, ok := markOf(e); ok {
		if m.Kind == MarkTruncated {
			m.Line = x.begun() + 1
		}
		if x.marks = append(x.marks, m); len(x.marks) > shownMarks {
			x.marks = everySecond(x.marks)
		}
	}
	switch e.Kind {
	case spool.KindResized:
		var r spool.Resized
		if json.Unmarshal(e.Data, &r) == nil {
			x.sizes = append(x.sizes, resized{e.Seq, r.Size})
		}
	case spool.KindOutput:
		x.counter.add(e)
	}
}

// place adds the place before an event.
func (x *index) place(e *spool.Event) {
	x.places = append(x.places, place{Point{e.Seq, e.Time, x.bytes, x.lines}, x.counter})
	if len(x.places) > indexPoints {
		x.step *= 2
		x.pause *= 2
		x.places = everySecond(x.places)
	}
}

// everySecond drops every second element; the first stays.
func everySecond[T any](all []T) []T {
	kept := all[:0]
	for i := 0; i < len(all); i += 2 {
		kept = append(kept, all[i])
	}
	return kept
}

// size is about how much memory the index takes.
func (x *index) size() int64 {
	return int64(len(x.places))*120 + int64(len(x.sizes))*16 + int64(len(x.marks))*48
}

// before returns the last place for which right holds, which it does up to some
// place and not after it. Without any it is the beginning of the log.
func (x *index) before(right func(*place) bool) place {
	low, high := 0, len(x.places)
	for low < high {
		mid := (low + high) / 2
		if right(&x.places[mid]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return place{Point: Point{Seq: 1}}
	}
	return x.places[low-1]
}

// shown returns the index for callers.
func (x *index) shown(complete bool, damaged spool.Seq) Index {
	out := Index{First: x.first, Last: x.last, End: x.end, Bytes: x.bytes, Lines: x.begun(), Marks: slices.Clone(x.marks), Complete: complete, DamagedFrom: damaged}
	n := min(len(x.places), shownPoints)
	out.Points = make([]Point, n)
	for i := range n {
		out.Points[i] = x.places[i*len(x.places)/n].Point
	}
	return out
}
