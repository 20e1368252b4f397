package search

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/render"
)

// maxLine is the size of the pieces in which a longer line is searched. It bounds the
// memory of a search.
const maxLine = sieve.MaxLine

// lanes are the sequences of lines in a log: the text of events that are not output,
// and each stream.
var lanes = [...]spool.Stream{"", spool.Stdout, spool.Stderr, spool.PTY}

// position is a place in a lane: an event, and an offset in its bytes or text.
type position struct {
	seq    spool.Seq
	offset int
}

// origin is where a line begins.
type origin struct {
	position
	time   time.Time
	kind   spool.Kind
	stream spool.Stream
	turn   spool.Seq
}

// lane is one sequence of lines.
type lane struct {
	skip position // what is before it was searched already
	line []byte   // the beginning of a line
	from origin   // of that line

	// Of the block that is looked at:
	join     []byte // the line, and the text of events after it
	open     int    // bytes of a line at the end of join
	joinFrom origin // of that line
}

// scanner searches the records of one run, block after block.
type scanner struct {
	run     spool.RunID
	match   *matcher
	limit   int // of hits
	maxLine int
	lanes   [len(lanes)]lane
	seen    spool.Seq // the last event that was searched completely
	next    spool.Seq // the first one that was not, now or for an earlier page
	hits    []Hit
	clean   []byte // a line without escape sequences
	loud    int    // blocks that are not expected to be quiet
	louder  int    // how many there were the last time
}

// newScanner returns a scanner that begins at a place, and the cursor to read after.
func newScanner(run spool.RunID, m *matcher, at place, limit int) (*scanner, spool.Seq) {
	s := &scanner{run: run, match: m, limit: limit, maxLine: maxLine}
	s.begin(at)
	return s, s.seen
}

// begin begins at a place.
func (s *scanner) begin(at place) {
	s.next = max(at.next, 1)
	first := s.next
	for i := range s.lanes {
		l := &s.lanes[i]
		l.line, l.skip = l.line[:0], position{seq: s.next}
		if p := at.lanes[i]; p.seq > 0 {
			l.skip = p
			first = min(first, p.seq)
		}
	}
	s.seen = first - 1
}

// place returns where a search goes on that does not repeat the hits so far.
func (s *scanner) place() place {
	at := place{next: s.next}
	for i := range s.lanes {
		l := &s.lanes[i]
		switch {
		case len(l.line) > 0:
			at.lanes[i] = l.from.position
		case l.skip.seq > s.seen:
			at.lanes[i] = l.skip
		}
	}
	return at
}

// block searches the records of consecutive events. It reports false if it stopped
// because there are enough hits.
func (s *scanner) block(ctx context.Context, b []byte) (bool, error) {
	if s.quiet(b) {
		return true, nil
	}
	for len(b) > 0 {
		e, n, err := record.Decode(b)
		if err != nil {
			return false, fmt.Errorf("search run %s: event %d: %w", s.run, e.Seq, err)
		}
		b = b[n:]
		more := true
		switch {
		case e.Kind == spool.KindOutput:
			if i := slices.Index(lanes[:], e.Stream); i > 0 {
				more = s.output(&s.lanes[i], &e)
			}
		case len(e.Data) > 0:
			more = s.event(ctx, &s.lanes[0], &e)
		}
		if !more {
			return false, nil
		}
		s.seen = e.Seq
		s.next = max(s.next, e.Seq+1)
	}
	return true, nil
}

// begin returns where the search of an event begins, unless that is past its end.
func (l *lane) begin(e *spool.Event) (origin, bool) {
	from := origin{position{seq: e.Seq}, e.Time, e.Kind, e.Stream, e.Turn}
	if e.Seq == l.skip.seq {
		from.offset = l.skip.offset
	}
	return from, e.Seq >= l.skip.seq
}

// event searches the text of an event that is not output.
func (s *scanner) event(ctx context.Context, l *lane, e *spool.Event) bool {
	from, ok := l.begin(e)
	if !ok {
		return true
	}
	out, err := render.Renderer{}.Event(ctx, e)
	if err != nil || out.Text == "" {
		return true
	}
	text := []byte(strings.TrimSuffix(out.Text, "\n") + "\n")
	return s.lines(l, from, text[min(from.offset, len(text)):])
}

// output searches the lines that end in an event. It reports false if there are enough
// hits.
func (s *scanner) output(l *lane, e *spool.Event) bool {
	from, ok := l.begin(e)
	if !ok {
		return true
	}
	text := e.Bytes[min(from.offset, len(e.Bytes)):]
	if len(l.line) > 0 { // of an event before
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return s.add(l, from, text)
		}
		if !s.add(l, from, text[:end]) {
			return false
		}
		text = text[end+1:]
		from.offset += end + 1
		if !s.end(l, from) {
			return false
		}
	}
	last := bytes.LastIndexByte(text, '\n') + 1
	if !s.lines(l, from, text[:last]) {
		return false
	}
	from.offset += last
	return s.add(l, from, text[last:])
}

// lines searches whole lines.
func (s *scanner) lines(l *lane, from origin, text []byte) bool {
	c := candidates{match: s.match, text: text, literal: -1, escape: -1}
	base := from.offset
	for at := 0; at < len(text); {
		found := c.next(at)
		if found == len(text) {
			break
		}
		begin := at + bytes.LastIndexByte(text[at:found], '\n') + 1
		end := found + bytes.IndexByte(text[found:], '\n')
		at = end + 1
		for more := true; more; {
			n := min(end-begin, s.maxLine)
			from.offset = base + begin
			s.look(from, text[begin:begin+n])
			begin += n
			more = begin < end
			if len(s.hits) >= s.limit {
				from.offset = base + at
				if more {
					from.offset = base + begin
				}
				l.skip = from.position
				return false
			}
		}
	}
	return true
}

// add appends text to the line of a lane. The text has no newline.
func (s *scanner) add(l *lane, from origin, text []byte) bool {
	for len(text) > 0 {
		if len(l.line) == s.maxLine && !s.end(l, from) {
			return false
		}
		if len(l.line) == 0 {
			l.from = from
		}
		n := min(len(text), s.maxLine-len(l.line))
		l.line = append(l.line, text[:n]...)
		text = text[n:]
		from.offset += n
	}
	return true
}

// end searches the line of a lane, which ends before a place.
func (s *scanner) end(l *lane, before origin) bool {
	s.look(l.from, l.line)
	l.line = l.line[:0]
	if len(s.hits) < s.limit {
		return true
	}
	l.skip = before.position
	return false
}

// finish searches the lines that have no end yet.
func (s *scanner) finish() bool {
	for i := range s.lanes {
		l := &s.lanes[i]
		if len(l.line) > 0 && !s.end(l, origin{position: position{seq: s.next}}) {
			return false
		}
	}
	return true
}

// look adds a hit if a line, or a piece of one, matches.
func (s *scanner) look(from origin, line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if bytes.IndexByte(line, escape) >= 0 {
		s.clean = visible.AppendUnstyled(s.clean[:0], line)
		line = s.clean
	}
	start, end, ok := s.match.find(line)
	if !ok {
		return
	}
	hit := Hit{Run: s.run, Seq: from.seq, Time: from.time, Kind: from.kind, Stream: from.stream, Turn: from.turn, Offset: from.offset}
	first, last := 0, len(line)
	if len(line) > maxText { // show what is around the match
		end = min(end, start+maxText/2)
		first = max(0, min(start-maxText/4, len(line)-maxText))
		last = min(len(line), first+maxText)
	}
	valid := func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
	before, match := valid(line[first:start]), valid(line[start:end])
	hit.Text = before + match + valid(line[end:last])
	hit.Start, hit.End = len(before), len(before)+len(match)
	s.hits = append(s.hits, hit)
}
