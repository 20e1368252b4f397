package search

import (
	"bytes"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

const (
	// joinBelow is the size of events whose text is copied, to search many of them
	// at once.
	joinBelow = 4 << 10
	// maxLoud bounds how many blocks are searched line by line at once, because a
	// line before them was found to match.
	maxLoud = 15
)

// quiet passes over a block if no line that ends in it can match. That is known much
// sooner than where a match is, and most blocks are quiet if the text is rare. It changes
// nothing if it reports false.
func (s *scanner) quiet(b []byte) bool {
	if len(s.match.needles) == 0 {
		return false
	}
	if s.loud > 0 {
		s.loud--
		return false
	}
	if !s.isQuiet(b) {
		s.louder = min(2*s.louder+1, maxLoud)
		s.loud = s.louder
		return false
	}
	s.louder = 0
	for i := range s.lanes {
		l := &s.lanes[i]
		l.line = append(l.line[:0], l.join[len(l.join)-l.open:]...)
		l.from = l.joinFrom
	}
	return true
}

// isQuiet collects the text of each lane in its join, and reports whether no line in it
// can match.
func (s *scanner) isQuiet(b []byte) bool {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.join = append(l.join[:0], l.line...)
		l.open, l.joinFrom = len(l.line), l.from
	}
	seq, _ := record.First(b)
	for i := range s.lanes {
		if skip := s.lanes[i].skip; skip.seq > seq || skip.seq == seq && skip.offset > 0 {
			return false // a part of the block was searched before
		}
	}
	for len(b) > 0 {
		e, n, err := record.Decode(b)
		if err != nil || e.Kind != spool.KindOutput && len(e.Data) > 0 {
			return false
		}
		b = b[n:]
		seq = e.Seq
		if i := slices.Index(lanes[:], e.Stream); e.Kind == spool.KindOutput && i > 0 {
			l := &s.lanes[i]
			if !l.take(&e, s.match) || l.open > s.maxLine {
				return false
			}
		}
	}
	for i := range s.lanes {
		if l := &s.lanes[i]; !s.match.absent(l.join[:len(l.join)-l.open]) {
			return false
		}
	}
	s.seen = seq
	s.next = max(s.next, seq+1)
	return true
}

// take adds the output of an event to the join. It reports false if it finds that a line
// may match.
func (l *lane) take(e *spool.Event, m *matcher) bool {
	text, offset := e.Bytes, 0
	if len(text) >= joinBelow {
		if l.open > 0 {
			end := bytes.IndexByte(text, '\n') + 1
			l.join = append(l.join, text[:end]...)
			if end > 0 {
				l.open = 0
			}
			text, offset = text[end:], end
		}
		if l.open == 0 {
			last := bytes.LastIndexByte(text, '\n') + 1
			if !m.absent(text[:last]) {
				return false
			}
			text, offset = text[last:], offset+last
		}
	}
	l.join = append(l.join, text...)
	if last := bytes.LastIndexByte(text, '\n') + 1; last > 0 {
		l.open = 0
		text, offset = text[last:], offset+last
	}
	if l.open == 0 && len(text) > 0 {
		l.joinFrom = origin{position{e.Seq, offset}, e.Time, e.Kind, e.Stream, e.Turn}
	}
	l.open += len(text)
	return true
}
