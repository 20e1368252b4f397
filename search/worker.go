package search

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
)

// worker searches runs, one after another.
type worker struct {
	buf   []byte // records
	notes []byte // of a sieve
	parts []sieve.Part
	left  int64 // of the first part, if it has to be read
	ask   int   // blocks to read before asking for a sieve again
}

// askEvery is how many blocks are read of a log that has no sieve, before asking again: its
// next segment may have one.
const askEvery = 16

// run searches one run, up to the end that its log has now.
func (w *worker) run(ctx context.Context, s *scan, j *job) {
	deadline := s.deadline()
	sc, _ := newScanner(j.info.ID, s.match, j.from, s.limit)
	defer func() { j.hits, j.at = sc.hits, sc.place() }()
	caughtUp := sc.next // what is before it was searched for an earlier page
	w.parts, w.ask = nil, 0
	for sc.seen < j.info.Last {
		p, err := w.part(ctx, s, sc)
		if err != nil {
			j.err = err
			break
		}
		if p != nil && !p.May {
			if more, err := sc.pass(ctx, p, j.info.Last); err != nil || !more {
				j.err = err
				return
			}
		} else {
			read := blockBytes
			if p != nil {
				read = int(min(max(w.left, minBlockBytes), blockBytes))
			}
			w.buf, _, j.err = record.Read(ctx, s.backend, j.info.ID, spool.Query{After: sc.seen, MaxBytes: read}, w.buf[:0])
			if j.err != nil || len(w.buf) == 0 {
				break
			}
			j.bytes += int64(len(w.buf))
			w.left -= int64(len(w.buf))
			var more bool
			if more, j.err = sc.block(ctx, w.buf); j.err != nil || !more {
				return
			}
		}
		if sc.next > caughtUp && time.Now().After(deadline) && sc.seen < j.info.Last {
			return
		}
	}
	if errors.Is(j.err, spool.ErrNotFound) && sc.next > 1 { // it was removed meanwhile
		j.err = nil
	}
	j.ended = j.err == nil && sc.finish()
}

// part returns the part of the log that has the next event, nil if nothing is known of
// it.
func (w *worker) part(ctx context.Context, s *scan, sc *scanner) (*sieve.Part, error) {
	if s.sifter == nil {
		return nil, nil
	}
	n := len(w.parts)
	w.parts = sieve.After(w.parts, sc.next-1)
	if len(w.parts) > 0 {
		if len(w.parts) < n {
			w.left = w.parts[0].Size
		}
		return &w.parts[0], nil
	}
	if w.ask > 0 {
		w.ask--
		return nil, nil
	}
	var err error
	w.parts, w.notes, err = s.sifter.Sift(ctx, sc.run, sc.next-1, s.match.sieve, w.notes)
	if err != nil || len(w.parts) == 0 {
		w.ask = askEvery
		return nil, err
	}
	w.left = w.parts[0].Size
	return &w.parts[0], nil
}

// pass passes over a part in which no line of output matches, and searches its other
// events. Last is the last event of the log. It reports false if there are enough hits.
func (s *scanner) pass(ctx context.Context, p *sieve.Part, last spool.Seq) (bool, error) {
	if len(p.Others) > 0 {
		at := place{next: s.next}
		if skip := s.lanes[0].skip; skip.seq >= s.next { // of an earlier page
			at.lanes[0] = skip
		}
		others, _ := newScanner(s.run, s.match, at, s.limit-len(s.hits))
		more, err := others.block(ctx, p.Others)
		s.hits = append(s.hits, others.hits...)
		if err != nil || !more {
			s.lanes[0].skip = others.lanes[0].skip
			return more, err
		}
	}
	at := place{next: p.End.Next}
	for i, open := range p.End.Open {
		// The line that is open at the end of a log belongs to its last part.
		if p.End.Next <= last {
			at.lanes[i+1] = position{open.Seq, open.Offset}
		}
	}
	s.begin(at)
	return true, nil
}
