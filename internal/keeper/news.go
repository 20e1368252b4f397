package keeper

import (
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// expectation is the first news of a run that this process starts, which its
// keeper tells by itself. It goes to the mirror of the run on the goroutine
// that reads from the keeper: every other one in between would cost a wake.
type expectation struct {
	mirror *mirror      // nil until there is one
	news   *record.News // what came before
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
	news, err := record.DecodeNews(b)
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
