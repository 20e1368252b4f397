package keeper

import (
	"encoding/binary"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// expectation is the first news of a run that this process starts, which its
// keeper tells by itself. It goes to the mirror of the run on the goroutine
// that reads from the keeper: every other one in between would cost a wake.
type expectation struct {
	mirror *mirror      // nil until there is one
	news   *awaitResult // what came before
}

// expect says that a run is about to be started. It is nil if somebody else
// expects the same.
func (l *link) expect(id spool.RunID) *expectation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.expected[id]; taken || l.gone {
		return nil
	}
	e := new(expectation)
	l.expected[id] = e
	return e
}

// forget undoes expect.
func (l *link) forget(id spool.RunID, e *expectation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e != nil && l.expected[id] == e {
		delete(l.expected, id)
	}
}

// deliver has the news of a run go to its mirror, now or when it comes.
func (l *link) deliver(e *expectation, m *mirror) {
	l.mu.Lock()
	e.mirror = m
	news, gone := e.news, l.gone
	if news != nil || gone {
		delete(l.expected, m.id)
	}
	l.mu.Unlock()
	if news != nil || gone {
		m.hear(news)
	}
}

// disappoint tells whoever expects news that none will come.
func (l *link) disappoint() {
	l.mu.Lock()
	l.gone = true
	var waiting []*mirror
	for id, e := range l.expected {
		if e.mirror != nil {
			waiting = append(waiting, e.mirror)
			delete(l.expected, id)
		}
	}
	l.mu.Unlock()
	for _, m := range waiting {
		m.hear(nil)
	}
}

// binary implements [handler].
func (l *link) binary(kind byte, b []byte) error {
	if kind == messageNews {
		return l.hear(b)
	}
	return nil // a newer keeper may send more
}

// hear takes the first news of a run.
func (l *link) hear(b []byte) error {
	news, err := decodeNews(b)
	if err != nil {
		return fmt.Errorf("keeper %s: %w", l.owner, err)
	}
	l.mu.Lock()
	e := l.expected[news.Info.ID]
	var m *mirror
	if e != nil {
		if m = e.mirror; m == nil {
			e.news = news
		} else {
			delete(l.expected, m.id)
		}
	}
	l.mu.Unlock()
	if m != nil {
		m.hear(news)
	}
	return nil
}

// appendNews appends the form in which the first news of a run is told: where
// its log ends, what of its description changes while it lives, and the records
// of the events.
func appendNews(dst []byte, news *awaitResult) (_ []byte, err error) {
	dst = appendText(dst, news.Info.ID)
	for _, n := range []uint64{uint64(*news.Last), uint64(news.Segment), uint64(news.Size)} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendProgress(dst, &news.Info)
	for i := range news.Events {
		if dst, err = eventlog.AppendRecord(dst, &news.Events[i]); err != nil {
			return nil, fmt.Errorf("encode news: %w", err)
		}
	}
	return dst, nil
}

// decodeNews is the inverse of appendNews. Its description is to be completed
// from what was said at the start.
func decodeNews(b []byte) (*awaitResult, error) {
	m := message{b: b}
	news := new(awaitResult)
	news.Info.ID = spool.RunID(m.text())
	last := spool.Seq(m.uint())
	news.Last, news.Segment, news.Size = &last, spool.Seq(m.uint()), int64(m.uint())
	m.progress(&news.Info)
	if m.err != nil {
		return nil, fmt.Errorf("decode news: %w", m.err)
	}
	for b = m.b; len(b) > 0; {
		e, n, err := eventlog.DecodeRecord(b)
		if err != nil {
			return nil, fmt.Errorf("decode news: %w", err)
		}
		e.Run = news.Info.ID
		news.Events = append(news.Events, e)
		b = b[n:]
	}
	return news, nil
}
