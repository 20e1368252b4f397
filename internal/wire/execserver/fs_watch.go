package execserver

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// maxMissing is how many paths one watch may name.
const maxMissing = 64

// missingWatch waits for paths that are missing to appear, or for one that is
// present to change. It reports once.
type missingWatch struct {
	events changes
	done   sync.WaitGroup
}

// changes is what the system tells about watched directories.
type changes interface {
	// wait blocks until something happened, or reports false when closed.
	wait() bool
	close()
}

// close ends the watch and waits for it.
func (w *missingWatch) close() {
	w.events.close()
	w.done.Wait()
}

// watchMissing replaces the watch of the connection: ids only grow, and an
// answer of false leaves the client to look for itself, which is always right.
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
	if err := checkFileSandbox(p.Sandbox); err != nil {
		return nil, err
	}
	type answer struct {
		Watching bool `json:"watching"`
	}
	usable := len(p.Missing) > 0 && len(p.Missing) <= maxMissing
	missing := make([]string, 0, len(p.Missing))
	for _, uri := range p.Missing {
		path, err := fileuri.Parse(uri)
		if isSyntaxError(err) {
			return nil, err
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
		usable = usable && err == nil
		present = path
	}

	// The id is taken and the old watch ended whatever comes of the new one.
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
	if f.closed || f.lastWatch != p.WatchID { // overtaken
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
