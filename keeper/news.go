package keeper

import (
	"encoding/json"
	"fmt"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
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
	if _, taken := l.expected[id]; taken || l.gone || l.hello.Protocol < 2 {
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

// Notification implements [rpc.Handler].
func (l *link) Notification(method string, params json.RawMessage) error {
	if method != notifyNews {
		return nil // of a newer keeper
	}
	var p newsParams
	if err := fastjson.Unmarshal(params, &p); err != nil {
		return fmt.Errorf("keeper %s: decode %s: %w", l.owner, method, err)
	}
	l.mu.Lock()
	e := l.expected[p.Run]
	var m *mirror
	if e != nil {
		if m = e.mirror; m == nil {
			e.news = &p.awaitResult
		} else {
			delete(l.expected, p.Run)
		}
	}
	l.mu.Unlock()
	if m != nil {
		m.hear(&p.awaitResult)
	}
	return nil
}
