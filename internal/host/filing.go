package host

import (
	"time"

	"github.com/spool-run/spool/internal/store"
)

const (
	// DefaultFileAfter is how long ago a run was completed before it is filed: its
	// readers are usually done then. The host looks twice in that time.
	DefaultFileAfter = 5 * time.Second
	// fileRest limits the time spent filing: the next batch waits this many
	// times as long as the last one took.
	fileRest = 30
)

// fileOften files finished runs until the host closes: those of this host, and
// first those that others left.
func (h *Host) fileOften() {
	after := h.opts.FileAfter
	look := after / 2
	wait, more := look, true
	for h.pause(wait) {
		wait = look
		if !h.ended.Swap(false) && !more || !h.mayFile() {
			continue
		}
		began := time.Now()
		filed, left, err := h.store.File(h.ctx, began.Add(-after))
		// A failure is retried next time; the runs stay where they are.
		more = left || err != nil
		if wait = fileRest * time.Since(began); filed < store.FileBatch {
			wait = max(wait, look)
		}
	}
}

// mayFile reports whether all hosts of the state directory know runs that are
// filed. A host of an earlier version would miss them.
func (h *Host) mayFile() bool {
	owners, err := Owners(h.opts.Dir)
	if err != nil {
		return false
	}
	for _, o := range owners {
		if o.Layout < layoutFiled {
			return false
		}
	}
	return true
}
