package store

import (
	"errors"
	"os"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/spare"
)

// spares are empty files that become the first segments of runs, so that a start
// does not wait for the creation of a file.
type spares struct {
	spare.Pool[*os.File]
	made int   // number of files so far, for their names
	errs error // of files that could not be removed
}

// init prepares the pool of a store.
func (s *spares) init(store *Store, want int) {
	s.Low, s.High = want/2, want
	s.Make = func() (*os.File, error) {
		s.made++
		return makeFile(store.newPath(spool.RunID("spare-"+strconv.Itoa(s.made))), os.O_EXCL)
	}
	s.Discard = func(f *os.File) { s.errs = errors.Join(s.errs, drop(f)) }
}

// close removes the files that were not used.
func (s *spares) close() error {
	s.Close()
	return s.errs
}

// drop removes a spare file, unless a sweep has removed it before.
func drop(f *os.File) error {
	err := os.Remove(f.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
