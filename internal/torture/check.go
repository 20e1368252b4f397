package torture

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
)

// checker reads the streams of one run and compares them with its plan,
// record by record.
type checker struct {
	plan    *Plan
	streams []*streamCheck
	echoed  uint32 // number of inputs that the worker answered in order
	found   []Violation
}

// streamCheck checks one stream: the bytes of an incomplete record, and the
// position of each producer.
type streamCheck struct {
	name  spool.Stream
	rest  []byte
	next  []uint32              // by producer
	holes []map[uint32]struct{} // by producer: numbers that were skipped
	torn  int                   // number of incomplete records
	junk  bool                  // reported a violation and found no record since
}

func newChecker(p *Plan) *checker {
	c := &checker{plan: p}
	for _, name := range p.streams() {
		s := &streamCheck{name: name}
		for range p.Children + 1 {
			s.next = append(s.next, 1)
			s.holes = append(s.holes, nil)
		}
		c.streams = append(c.streams, s)
	}
	return c
}

func (c *checker) violate(kind Kind, format string, args ...any) {
	const enough = 20 // violations per run
	if len(c.found) < enough {
		c.found = append(c.found, Violation{Kind: kind, Detail: fmt.Sprintf(format, args...)})
	}
}

// output checks delivered bytes of a stream.
func (c *checker) output(name spool.Stream, b []byte) {
	i := slices.IndexFunc(c.streams, func(s *streamCheck) bool { return s.name == name })
	if i < 0 {
		if len(b) > 0 {
			c.violate(Invented, "%d bytes on %s, which the worker does not write to: %.60q", len(b), name, b)
		}
		return
	}
	s := c.streams[i]
	s.rest = append(s.rest, b...)
	buf := s.rest
	for len(buf) > 0 {
		r, n, err := parseRecord(buf)
		if errors.Is(err, errShort) {
			// Skip an incomplete record to check those behind it.
			if next := nextRecord(buf); next > 0 {
				s.torn++
				buf = buf[next:]
				continue
			}
			break
		}
		if err != nil {
			next := nextRecord(buf)
			s.torn++
			if next < 0 {
				next = max(1, len(buf)-len(magic)+1)
				if !s.junk {
					s.junk = true
					c.violate(Corrupted, "%s holds bytes that are no record: %.60q", name, buf)
				}
			}
			buf = buf[next:]
			continue
		}
		s.junk = false
		c.record(s, uint8(i), &r)
		buf = buf[n:]
	}
	s.rest = append(s.rest[:0], buf...)
}

// nextRecord returns the index of the next complete record after the first
// byte, or -1.
func nextRecord(b []byte) int {
	for at := 1; ; {
		n := bytes.Index(b[at:], magic)
		if n < 0 {
			return -1
		}
		at += n
		if _, _, err := parseRecord(b[at:]); err == nil {
			return at
		}
		at++
	}
}

// record checks one complete record.
func (c *checker) record(s *streamCheck, stream uint8, r *record) {
	who := fmt.Sprintf("record %d of producer %d on %s", r.number, r.producer, s.name)
	switch {
	case r.run != c.plan.Run:
		c.violate(Invented, "%s is of run %d", who, r.run)
		return
	case int(r.producer) >= len(s.next) || r.stream != stream:
		c.violate(Invented, "%s has no place in the plan", who)
		return
	case !bytes.Equal(r.payload, c.plan.payload(nil, r.producer, stream, r.number)):
		c.violate(Corrupted, "%s does not hold what was written", who)
	}
	next := s.next[r.producer]
	switch {
	case r.number == next:
		s.next[r.producer]++
	case r.number > next:
		if s.holes[r.producer] == nil {
			s.holes[r.producer] = make(map[uint32]struct{})
		}
		for n := next; n < r.number && n < next+1000; n++ {
			s.holes[r.producer][n] = struct{}{}
		}
		s.next[r.producer] = r.number + 1
	default:
		if _, late := s.holes[r.producer][r.number]; late {
			delete(s.holes[r.producer], r.number)
			c.violate(Reordered, "%s came after record %d", who, next-1)
		} else {
			c.violate(Repeated, "%s came again after record %d", who, next-1)
		}
		return
	}
	switch r.kind {
	case kindEcho:
		if r.arg != c.echoed+1 {
			c.violate(BadInput, "input %d was answered after input %d", r.arg, c.echoed)
		}
		c.echoed = r.arg
	case kindBad:
		c.violate(BadInput, "the worker read other bytes after input %d than were sent", r.arg)
	}
}

// ending describes how a run ended, as far as its checks depend on it.
type ending struct {
	whole  bool    // ended by itself as planned: all records must be present
	killed bool    // possibly in the middle of a record
	lost   bool    // a fault excuses the loss of records not yet logged
	ledger *ledger // the records that the worker reports as written; may be nil
	acked  uint32  // number of acknowledged inputs
}

// finish performs the checks that need the end of the run.
func (c *checker) finish(end ending) {
	for i, s := range c.streams {
		c.finishStream(s, i, &end)
	}
	switch {
	case c.plan.Shape != Echo || end.lost:
	case end.whole && c.echoed != uint32(c.plan.Records):
		c.violate(BadInput, "%d inputs were sent, %d answered", c.plan.Records, c.echoed)
	case end.whole && end.acked > c.echoed:
		c.violate(BadInput, "%d inputs were acknowledged, %d answered", end.acked, c.echoed)
	}
}

func (c *checker) finishStream(s *streamCheck, stream int, end *ending) {
	torn := s.torn
	if len(s.rest) > 0 {
		torn++
	}
	// Only a kill during a write leaves an incomplete record.
	if torn > 0 && !end.lost && (!end.killed || torn > len(s.next)) {
		c.violate(Corrupted, "%s breaks off in the middle of a record %d times; %d bytes are left", s.name, torn, len(s.rest))
	}
	for producer, next := range s.next {
		who := fmt.Sprintf("producer %d on %s", producer, s.name)
		if holes := s.holes[producer]; len(holes) > 0 {
			c.violate(Lost, "%d records of %s, the first is %d", len(holes), who, firstHole(holes))
		}
		got, want := int(next-1), c.plan.records(stream)
		if want >= 0 && got > want {
			c.violate(Invented, "%d records of %s, which writes %d", got, who, want)
		}
		if end.lost {
			continue
		}
		if end.whole && want >= 0 && got < want {
			c.violate(Lost, "records %d to %d of %s", got+1, want, who)
			continue
		}
		if end.ledger == nil || !end.ledger.begun(uint8(producer)) {
			continue
		}
		written := int(end.ledger.written(uint8(producer), uint8(stream)))
		switch {
		case got < written:
			c.violate(Lost, "records %d to %d of %s, which the ledger reports as written", got+1, written, who)
		case got > written+1: // a kill may come between the write and the ledger entry
			c.violate(Invented, "%d records of %s, which wrote %d", got, who, written)
		}
	}
}

func firstHole(holes map[uint32]struct{}) uint32 {
	first := ^uint32(0)
	for n := range holes {
		first = min(first, n)
	}
	return first
}
