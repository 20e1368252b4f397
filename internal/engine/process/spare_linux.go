package process

import (
	"sync"

	"golang.org/x/sys/unix"
)

// spares are the pipes of processes to come, so that a start need not make
// them. They are of those that have no input, as most do.
type spares struct {
	want int // how many to have ready

	mu      sync.Mutex
	ready   []*files
	filling bool
	closed  bool
}

// takeSpare returns spare pipes, or nil, and has more made when few are left.
func (e *Engine) takeSpare() *files {
	s := &e.spares
	if s.want == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.ready)
	if n <= s.want/2 && !s.filling && !s.closed {
		s.filling = true
		e.crew.Go(e.fillSpares)
	}
	if n == 0 {
		return nil
	}
	f := s.ready[n-1]
	s.ready = s.ready[:n-1]
	return f
}

// fillSpares makes pipes until there are enough. What goes wrong is found out
// again by a start that has to make its own.
func (e *Engine) fillSpares() {
	s := &e.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) < s.want && !s.closed {
		s.mu.Unlock()
		f, err := openPipes(false, e.null)
		if err == nil {
			if err = f.watch(); err != nil {
				f.close()
			}
		}
		s.mu.Lock()
		if err != nil {
			break
		}
		s.ready = append(s.ready, f)
	}
	s.filling = false
}

// close lets go of those that were not used. Nobody fills any more.
func (s *spares) close() {
	for _, f := range s.ready {
		f.close()
	}
	s.ready = nil
}

// watch makes the epoll descriptor that watches our ends of the output.
func (f *files) watch() (err error) {
	if f.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		f.epfd = -1
		return err
	}
	for i, fd := range []int{f.stdout, f.stderr} {
		if fd < 0 {
			continue
		}
		if err := watch(f.epfd, fd, i); err != nil {
			return err
		}
	}
	return nil
}
