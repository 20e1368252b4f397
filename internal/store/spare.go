package store

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"github.com/spool-run/spool"
)

// spares are empty files that wait to become the first segments of runs, so
// that a start need not wait for a file to be made.
type spares struct {
	want int // how many to have ready

	mu      sync.Mutex
	files   []*os.File
	made    int
	filling bool
	closed  bool
	wg      sync.WaitGroup // of the one who fills
}

// take returns a spare file, or nil, and has more made when few are left.
func (s *spares) take(store *Store) *os.File {
	if s.want == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.files)
	// Not one by one: most of those who start something then do so without a
	// competitor for the processor.
	if n <= s.want/2 && !s.filling && !s.closed {
		s.filling = true
		s.wg.Go(func() { s.fill(store) })
	}
	if n == 0 {
		return nil
	}
	f := s.files[n-1]
	s.files = s.files[:n-1]
	return f
}

// fill makes files until there are enough. What goes wrong is found out again
// by a start that has to make its own.
func (s *spares) fill(store *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) < s.want && !s.closed {
		s.made++
		path := store.newPath(spool.RunID("spare-" + strconv.Itoa(s.made)))
		s.mu.Unlock()
		f, err := makeFile(path, os.O_EXCL)
		s.mu.Lock()
		if err != nil {
			break
		}
		s.files = append(s.files, f)
	}
	s.filling = false
}

// close removes what was not used.
func (s *spares) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
	var errs []error
	for _, f := range s.files {
		errs = append(errs, drop(f))
	}
	s.files = nil
	return errors.Join(errs...)
}

// drop removes a spare file, which a sweep may have done before.
func drop(f *os.File) error {
	err := os.Remove(f.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
