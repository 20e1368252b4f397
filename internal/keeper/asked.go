package keeper

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
)

// asked are the mirrors that have asked the keeper of a connection for an update by a
// binary message, and wait for the answer. There may be thousands, and none has a
// goroutine. The answers come on the goroutine that reads.
type asked struct {
	mu      sync.Mutex
	last    uint64                  // the id that was given last
	waiting map[uint64]newsReceiver // by id
	err     error                   // why there will be no answers any more; nil while there may be
}

// newsReceiver is a [mirror].
type newsReceiver interface {
	// receiveNews gets an update, in the form of [record.AppendWhole], or the reason
	// why there is none. It must not block.
	receiveNews(b []byte, err error)
}

// add gives a request of a mirror an id. The error is [rpc.ErrConnClosed] if the
// connection has ended.
func (a *asked) add(m newsReceiver) (id uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return 0, a.err
	}
	if a.waiting == nil {
		a.waiting = make(map[uint64]newsReceiver)
	}
	a.last++
	a.waiting[a.last] = m
	return a.last, nil
}

// take removes a request, and reports whether it waited.
func (a *asked) take(id uint64) (newsReceiver, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.waiting[id]
	delete(a.waiting, id)
	return m, ok
}

// answer passes an answer to the mirror that waits for it.
func (a *asked) answer(kind byte, b []byte) error {
	id, b, err := cutID(b)
	if err != nil {
		return err
	}
	m, ok := a.take(id)
	if !ok {
		return fmt.Errorf("an update that was not asked for: id %d", id)
	}
	if kind == messageNews {
		m.receiveNews(b, nil)
		return nil
	}
	refused, err := decodeRefused(b)
	if err != nil {
		m.receiveNews(nil, err)
		return fmt.Errorf("decode error of an update: %w", err)
	}
	m.receiveNews(nil, refused)
	return nil
}

// close tells all mirrors that the connection has ended.
func (a *asked) close(err error) {
	a.mu.Lock()
	a.err = err
	waiting := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for _, m := range waiting {
		m.receiveNews(nil, err)
	}
}

// tellsNews reports whether the keeper understands binary requests for updates.
func (k *keeperConn) tellsNews() bool { return k.hello.Protocol >= newsProtocol }

// ask has the keeper asked for an update of a run after a cursor, and may wait for the
// keeper to take the request. Unless it returns an error, the mirror gets the answer.
func (k *keeperConn) ask(m newsReceiver, run spool.RunID, after spool.Seq) error {
	id, err := k.asked.add(m)
	if err == nil {
		_ = k.transport.send(appendAwait(id, run, after)) // a failed write ends the connection, which is an answer
	}
	return err
}

// tryAsk is ask that does not wait. It reports false if the keeper was not asked.
func (k *keeperConn) tryAsk(m newsReceiver, run spool.RunID, after spool.Seq) bool {
	id, err := k.asked.add(m)
	if err != nil {
		return false
	}
	if k.transport.sendSoon(appendAwait(id, run, after)) {
		return true
	}
	_, waits := k.asked.take(id)
	return !waits // the connection has ended meanwhile, and that was the answer
}

// appendAwait returns a request for an update.
func appendAwait(id uint64, run spool.RunID, after spool.Seq) []byte {
	b := make([]byte, 0, 3*binary.MaxVarintLen64+len(run))
	b = binary.AppendUvarint(appendHeader(b, messageAwait, id), uint64(after))
	return append(b, run...)
}
