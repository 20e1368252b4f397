package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/eventlog"
)

// expectation is the first news of a run that this process starts, which its
// keeper tells by itself. It goes to the mirror of the run on the goroutine
// that reads from the keeper: every other one in between would cost a wake.
type expectation struct {
	mirror *mirror      // nil until there is one
	news   *awaitResult // what came before
}

// expect says that a run is about to be started. It is nil if the keeper does
// not tell, or somebody else expects the same.
func (l *link) expect(id spool.RunID) *expectation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.expected[id]; taken || l.gone || l.hello.Protocol < newsProtocol {
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

// Binary implements [rpc.BinaryHandler]: it is the first news of a run.
func (l *link) Binary(b []byte) error {
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

// appendNews appends the form in which the first news of a run is told, which
// is that of most runs: numbers, the description, and the records of the
// events.
func appendNews(dst []byte, news *awaitResult) (_ []byte, err error) {
	for _, n := range []uint64{uint64(*news.Last), uint64(news.Segment), uint64(news.Size)} {
		dst = binary.AppendUvarint(dst, n)
	}
	info := news.Info.AppendJSON(nil)
	dst = binary.AppendUvarint(dst, uint64(len(info)))
	dst = append(dst, info...)
	for i := range news.Events {
		if dst, err = eventlog.AppendRecord(dst, &news.Events[i]); err != nil {
			return nil, fmt.Errorf("encode news: %w", err)
		}
	}
	return dst, nil
}

var errNews = errors.New("decode news: it is cut")

// decodeNews is the inverse of appendNews.
func decodeNews(b []byte) (*awaitResult, error) {
	var numbers [4]uint64
	for i := range numbers {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, errNews
		}
		numbers[i], b = n, b[size:]
	}
	last := spool.Seq(numbers[0])
	news := &awaitResult{Last: &last, Segment: spool.Seq(numbers[1]), Size: int64(numbers[2])}
	size := numbers[3]
	if size > uint64(len(b)) {
		return nil, errNews
	}
	if err := fastjson.Unmarshal(b[:size], &news.Info); err != nil {
		return nil, fmt.Errorf("decode news: %w", err)
	}
	for b = b[size:]; len(b) > 0; {
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
