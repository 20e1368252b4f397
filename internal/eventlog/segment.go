package eventlog

import "github.com/spool-run/spool"

// segmentEvents is how many events a segment holds at most.
const segmentEvents = 256

// segment is a stretch of the log in memory. Events are only ever added, and
// what is there never changes, so a reader takes a slice of it under the lock
// and reads it without.
type segment struct {
	first  spool.Seq
	events []spool.Event
	bytes  int
}

// full reports whether the next event belongs into a new segment. Segments are
// what is dropped as a whole, so they are small against the memory bound.
func (s *segment) full(memory int) bool {
	return len(s.events) >= segmentEvents || s.bytes >= memory/4
}

func (s *segment) add(e spool.Event, size int) {
	s.events = append(s.events, e)
	s.bytes += size
}

// fit returns the events of the parts: one in any case, and no more than fit
// in maxBytes beyond that. Events of one part are not copied.
func fit(parts [][]spool.Event, maxBytes int) []spool.Event {
	total := 0
	for p, part := range parts {
		for i := range part {
			total += part[i].Size()
			if total > maxBytes && p+i > 0 {
				parts[p] = part[:i]
				return join(parts[:p+1])
			}
		}
	}
	return join(parts)
}

func join(parts [][]spool.Event) []spool.Event {
	if n := len(parts); n > 1 && len(parts[n-1]) == 0 {
		parts = parts[:n-1]
	}
	if len(parts) == 1 {
		return parts[0][:len(parts[0]):len(parts[0])]
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	all := make([]spool.Event, 0, n)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
