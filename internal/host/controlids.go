package host

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spool-run/spool"
)

const (
	// maxControlIDs is how many ids of controls a run remembers, to know those that
	// are repeated.
	maxControlIDs = 256
	// maxControlIDBytes is the length of such an id.
	maxControlIDBytes = 128
)

// controlIDs are the ids of the last controls of a run.
type controlIDs struct {
	mu    sync.Mutex
	known []*knownControl // oldest first
}

// knownControl is a control with an id.
type knownControl struct {
	id   string
	done chan struct{} // closed when err is set
	err  error
}

// once does a control, unless one with the same id is done or under way: then it
// waits for that one. A control that failed was not done, and is forgotten.
func (c *controlIDs) once(ctx context.Context, id string, do func() error) error {
	if id == "" {
		return do()
	}
	if len(id) > maxControlIDBytes {
		return fmt.Errorf("%w: an id of %d bytes; a control has %d at most", spool.ErrInvalid, len(id), maxControlIDBytes)
	}
	for {
		k, first := c.add(id)
		if first {
			k.err = do()
			if k.err != nil {
				c.remove(k)
			}
			close(k.done)
			return k.err
		}
		select {
		case <-k.done:
			if k.err == nil {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add returns the control with an id, and reports whether it is a new one.
func (c *controlIDs) add(id string) (k *knownControl, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.known, func(k *knownControl) bool { return k.id == id }); i >= 0 {
		return c.known[i], false
	}
	if len(c.known) == maxControlIDs {
		c.known = slices.Delete(c.known, 0, 1)
	}
	k = &knownControl{id: id, done: make(chan struct{})}
	c.known = append(c.known, k)
	return k, true
}

func (c *controlIDs) remove(k *knownControl) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.known, k); i >= 0 {
		c.known = slices.Delete(c.known, i, i+1)
	}
}
