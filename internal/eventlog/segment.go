package eventlog

import "github.com/spool-run/spool"

// segmentEvents is the largest number of events in a segment.
const segmentEvents = 256

// segment is a part of the log in memory. Events are added and never changed, so
// a reader takes a slice of them under the log's lock and reads it without.
type segment struct {
	first  spool.Seq
	events []spool.Event
	bytes  int
}

// full reports whether the next event needs a new segment. The log drops whole
// segments, so they are small compared to its memory bound.
func (s *segment) full(memory int) bool {
	return len(s.events) >= segmentEvents || s.bytes >= memory/4
}

func (s *segment) add(e spool.Event, size int) {
	s.events = append(s.events, e)
	s.bytes += size
}

// fit returns the events of the parts: the first one, and then as many as fit in
// maxBytes. It does not copy the events of a single part.
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
