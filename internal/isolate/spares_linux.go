//go:build amd64 || arm64

package isolate

import (
	"bytes"
	"errors"
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
	ended  chan struct{}                   // closed when the pools end
	timer  *time.Timer                     // ends them; nil while there are none
	closed bool
}

// fillAfter is how long a start has the processors for itself before the next first
// process is started: its program would wait for that one.
const fillAfter = 10 * time.Millisecond

var errEnded = errors.New("the spares have ended")

// first is the first process of a sandbox that is still to be made.
type first struct {
	*sandbox
	mounts []byte // the mounts of the machine before it began, which it has a copy of
}

// newFirst starts a first process after a while, unless the spares end.
func newFirst(flags uintptr, ended <-chan struct{}) (*first, error) {
	select {
	case <-time.After(fillAfter):
	case <-ended:
		return nil, errEnded
	}
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
		if s.pools == nil {
			s.pools, s.ended = make(map[uintptr]*spare.Pool[*first]), make(chan struct{})
		}
		ended := s.ended
		p = &spare.Pool[*first]{High: 1, Make: func() (*first, error) { return newFirst(flags, ended) }, Discard: func(f *first) { f.close() }}
		s.pools[flags] = p
	}
	return p
}

// begin gives a sandbox its first process: one that is ready, or a new one, as without
// spares.
func (s *spares) begin(to *sandbox) error {
	if s != nil && s.take(to) {
		return nil
	}
	return to.begin()
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

// fill has one ready soon for the next sandbox of the kind, unless there are no spares.
func (s *spares) fill(flags uintptr) {
	if s == nil {
		return
	}
	if p := s.pool(flags); p != nil {
		p.Fill()
	}
}

// drop ends those that are ready.
func (s *spares) drop() {
	s.mu.Lock()
	pools := s.pools
	if pools != nil {
		close(s.ended)
	}
	s.pools, s.ended, s.timer = nil, nil, nil
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
