package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/privatedir"
)

// outbox has a copy of every run that this node put in the queue, until the run has
// left it: a file with the fact, sealed as it is in the store. What the store forgets is
// put in the queue again.
type outbox struct {
	dir   string
	facts *store

	mu  sync.Mutex
	ids map[spool.RunID]time.Time // when they were put in the queue
}

// openOutbox opens the outbox of a node.
func openOutbox(state string, facts *store) (*outbox, error) {
	o := &outbox{dir: filepath.Join(state, dirName, outboxDir), facts: facts, ids: make(map[spool.RunID]time.Time)}
	if err := privatedir.Make(o.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, e := range entries {
		if id := spool.RunID(e.Name()); id.Check() == nil {
			o.ids[id] = now
		} else {
			_ = os.Remove(filepath.Join(o.dir, e.Name())) // of a write that was cut off
		}
	}
	return o, nil
}

func (o *outbox) path(id spool.RunID) string { return filepath.Join(o.dir, string(id)) }

// put keeps a copy of a run that is in the queue.
func (o *outbox) put(rec *queueRecord) error {
	if err := writeFile(o.path(rec.ID), encode(rec)); err != nil {
		return fmt.Errorf("keep a copy of run %s: %w", rec.ID, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids[rec.ID] = time.Now()
	return nil
}

// drop removes the copy of a run that waits no more.
func (o *outbox) drop(id spool.RunID) {
	o.mu.Lock()
	_, ok := o.ids[id]
	delete(o.ids, id)
	o.mu.Unlock()
	if ok {
		_ = os.Remove(o.path(id)) // else the next start of the node looks after it
	}
}

// before returns the runs that were put in the queue before a moment.
func (o *outbox) before(t time.Time) (ids []spool.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, at := range o.ids {
		if at.Before(t) {
			ids = append(ids, id)
		}
	}
	return ids
}

// again puts all runs in the queue that the store has forgotten. One that was started
// meanwhile leaves it again, for its id is claimed.
func (o *outbox) again(ctx context.Context) error {
	for _, id := range o.before(time.Now()) {
		b, err := os.ReadFile(o.path(id))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just left
		}
		var rec queueRecord
		if err == nil {
			err = json.Unmarshal(b, &rec)
		}
		if err != nil {
			return fmt.Errorf("read the copy of run %s: %w", id, err)
		}
		rec.Nonce = newNonce()
		_, err = o.facts.Put(ctx, Fact{Key: queuePrefix + string(id), Data: encode(&rec)}, 0, 0)
		if err != nil && !errors.Is(err, ErrConflict) {
			return fmt.Errorf("put run %s in the queue again: %w", id, err)
		}
	}
	return nil
}
