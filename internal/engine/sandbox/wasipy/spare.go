package wasipy

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// spareMemory is the limit of interpreters that are made before it is known
// for whom. Most limits are not above it.
const spareMemory = guest.DefaultMemory

// maxSpares is how many interpreters are kept that nobody uses.
var maxSpares = runtime.GOMAXPROCS(0) + 1

// spares holds interpreters that are as the image is, so that a script need
// not wait for its own to be mapped.
type spares struct {
	mu     sync.Mutex
	list   []*instance
	closed bool
	making sync.WaitGroup
	busy   bool // one is being made
}

// spare returns an interpreter that is a fresh copy of the image.
func (m *machine) spare(ctx context.Context, o instanceOptions) (*instance, error) {
	if o.memory <= spareMemory {
		if i := m.spares.take(); i != nil {
			i.own(o)
			return i, nil
		}
	}
	return m.instantiate(ctx, o)
}

func (s *spares) take() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	if n == 0 {
		return nil
	}
	i := s.list[n-1]
	s.list = s.list[:n-1]
	return i
}

// give keeps an interpreter for the next, or closes it.
func (s *spares) give(i *instance) {
	s.mu.Lock()
	if !s.closed && len(s.list) < maxSpares {
		s.list = append(s.list, i)
		i = nil
	}
	s.mu.Unlock()
	if i != nil {
		i.close()
	}
}

// own gives an interpreter the bounds of its user.
func (i *instance) own(o instanceOptions) {
	i.o = o
	i.files.max = o.files
	i.cow.limit = max(o.memory, i.cow.size)
	i.start = time.Now()
}

// done takes an interpreter back whose user is through with it, or lost it.
func (m *machine) done(i *instance, lost bool) {
	if !lost && uint64(len(i.cow.region)) == spareMemory && i.recycle() {
		m.spares.give(i)
		return
	}
	// Now, while somebody is there to do it. To unmap much memory takes its
	// time, and nobody has to wait for that.
	i.files.closeAll()
	m.spares.making.Go(i.close)
}

// refill makes one if there is none, beside what the caller goes on with.
func (m *machine) refill() {
	s := &m.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy || len(s.list) > 0 {
		return
	}
	s.busy = true
	s.making.Go(func() {
		i, err := m.instantiate(context.Background(), instanceOptions{memory: spareMemory})
		s.mu.Lock()
		s.busy = false
		s.mu.Unlock()
		if err == nil { // else who needs one learns why
			s.give(i)
		}
	})
}

// drain closes the spares, and waits for those that are being made.
func (s *spares) drain() {
	s.mu.Lock()
	s.closed = true
	list := s.list
	s.list = nil
	s.mu.Unlock()
	for _, i := range list {
		i.close()
	}
	s.making.Wait()
}
