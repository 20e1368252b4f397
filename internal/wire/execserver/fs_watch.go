package execserver

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// maxMissing is the limit of paths per watch.
const maxMissing = 64

// missingWatch waits until a missing path appears or the present path changes.
// It reports once.
type missingWatch struct {
	events changes
	done   sync.WaitGroup
}

// changes reports changes of watched directories.
type changes interface {
	// wait blocks until a change, or returns false when closed.
	wait() bool
	close()
}

// close ends the watch and waits for its goroutine.
func (w *missingWatch) close() {
	w.events.close()
	w.done.Wait()
}

// watchMissing replaces the watch of the connection. Watch ids only grow. After
// the answer false the client polls.
func (f *files) watchMissing(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		WatchID uint64          `json:"watchId"`
		Missing []string        `json:"missing"`
		Present *string         `json:"present"`
		Sandbox json.RawMessage `json:"sandbox"`
	}
	if err := decode(params, &p, "watchId", "missing"); err != nil {
		return nil, err
	}
	t, err := treeFor(p.Sandbox, false)
	if err != nil {
		return nil, err
	}
	type answer struct {
		Watching bool `json:"watching"`
	}
	_, whole := t.(host) // a watch would tell of files that the sandbox hides
	usable := whole && len(p.Missing) > 0 && len(p.Missing) <= maxMissing
	missing := make([]string, 0, len(p.Missing))
	for _, uri := range p.Missing {
		path, err := fileuri.Parse(uri)
		if isSyntaxError(err) {
			return nil, err
		}
		if err == nil {
			if err := f.check(path); err != nil {
				return nil, err
			}
		}
		usable = usable && err == nil
		missing = append(missing, path)
	}
	var present string
	if p.Present != nil {
		path, err := fileuri.Parse(*p.Present)
		if isSyntaxError(err) {
			return nil, err
		}
		if err == nil {
			if err := f.check(path); err != nil {
				return nil, err
			}
		}
		usable = usable && err == nil
		present = path
	}

	// The id counts as used and the old watch ends, even if the new watch
	// fails.
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, os.ErrClosed
	}
	if f.watched && p.WatchID <= f.lastWatch {
		f.mu.Unlock()
		return answer{false}, nil
	}
	f.watched, f.lastWatch = true, p.WatchID
	old := f.watch
	f.watch = nil
	f.mu.Unlock()
	if old != nil {
		old.close()
	}
	if !usable {
		return answer{false}, nil
	}
	events, ok := watchPaths(missing, present)
	if !ok {
		return answer{false}, nil
	}

	w := &missingWatch{events: events}
	f.mu.Lock()
	if f.closed || f.lastWatch != p.WatchID { // a later watch replaced it
		f.mu.Unlock()
		events.close()
		return answer{false}, nil
	}
	f.watch = w
	w.done.Go(func() {
		if events.wait() {
			f.notify("fs/missingChanged", struct {
				WatchID uint64 `json:"watchId"`
			}{p.WatchID})
		}
		events.close()
	})
	f.mu.Unlock()
	return answer{true}, nil
}
