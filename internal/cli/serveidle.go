package cli

import (
	"net/http"
	"sync"
	"time"
)

// idleExit tells when a server has had no request for a while.
type idleExit struct {
	after time.Duration

	mu     sync.Mutex
	active int
	timer  *time.Timer
}

// newIdleExit begins to count. After zero it never tells.
func newIdleExit(after time.Duration) *idleExit {
	i := &idleExit{after: after}
	if after > 0 {
		i.timer = time.NewTimer(after)
	}
	return i
}

// over counts the requests of a handler.
func (i *idleExit) over(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.count(1)
		defer i.count(-1)
		h.ServeHTTP(w, r)
	})
}

// count counts a request, or something else that lasts.
func (i *idleExit) count(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active += n
	switch {
	case i.timer == nil:
	case i.active > 0:
		i.timer.Stop()
	default:
		i.timer.Reset(i.after)
	}
}

// C has a value once the server had no request for that time.
func (i *idleExit) C() <-chan time.Time {
	if i.timer == nil {
		return nil
	}
	return i.timer.C
}
