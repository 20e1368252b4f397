//go:build amd64 || arm64

package isolate

import (
	"bytes"
	"os"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/spare"
)

// spares keeps the first process of the next sandbox ready, which takes longer to
// start than a sandbox takes to be made around it. There is one for a while after a
// sandbox was made, and none before: most programs never isolate a run.
type spares struct {
	mu     sync.Mutex
	pools  map[uintptr]*spare.Pool[*first] // by the namespaces
	timer  *time.Timer                     // ends them; nil while there are none
	closed bool
}

// first is the first process of a sandbox that is still to be made.
type first struct {
	*sandbox
	mounts []byte // the mounts of the machine before it began, which it has a copy of
}

func newFirst(flags uintptr) (*first, error) {
	f := &first{sandbox: &sandbox{pidfd: -1, control: -1, flags: flags}}
	var err error
	if f.mounts, err = mounts(); err == nil {
		err = f.begin()
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// fits reports whether a sandbox can be made with it.
func (f *first) fits() bool {
	now, err := mounts()
	return err == nil && bytes.Equal(now, f.mounts) && f.alive()
}

// mounts returns a description of the mounts of this process.
func mounts() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }

// pool returns the pool for namespaces, and lets it stay for another idleTime. It is
// nil after close.
func (s *spares) pool(flags uintptr) *spare.Pool[*first] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(idleTime, s.drop)
	} else {
		s.timer.Reset(idleTime)
	}
	p := s.pools[flags]
	if p == nil {
		p = &spare.Pool[*first]{High: 1, Make: func() (*first, error) { return newFirst(flags) }, Discard: func(f *first) { f.close() }}
		if s.pools == nil {
			s.pools = make(map[uintptr]*spare.Pool[*first])
		}
		s.pools[flags] = p
	}
	return p
}

// take has a sandbox use a first process that is ready, and reports whether there is
// one.
func (s *spares) take(to *sandbox) bool {
	p := s.pool(to.flags)
	if p == nil {
		return false
	}
	f, ok := p.Take()
	if !ok {
		return false
	}
	if !f.fits() {
		f.close()
		return false
	}
	to.pid, to.pidfd, to.control = f.pid, f.pidfd, f.control
	return true
}

// fill has one ready for the next sandbox of the kind.
func (s *spares) fill(flags uintptr) {
	if p := s.pool(flags); p != nil {
		p.Fill()
	}
}

// drop ends those that are ready.
func (s *spares) drop() {
	s.mu.Lock()
	pools := s.pools
	s.pools, s.timer = nil, nil
	s.mu.Unlock()
	for _, p := range pools {
		p.Close()
	}
}

// close ends those that are ready, and keeps none from then on.
func (s *spares) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.drop()
}
