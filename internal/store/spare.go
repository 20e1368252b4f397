package store

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/spare"
)

// spares are empty files that become the first segments of runs, so that a start
// does not wait for the creation of a file.
//
// They are made in directories of their own below spares/, which lie apart on the
// disk: ext4 makes a file near its directory, and without a journal it first looks
// at every file that was deleted there in the last minutes, by anyone. After a few
// thousand deletions that takes milliseconds for each new file.
type spares struct {
	spare.Pool[*os.File]
	store *Store

	mu   sync.Mutex
	dir  string   // where the next file is made; empty before the first
	made int      // number of files in dir so far, for their names
	past []string // earlier directories that may not be empty
	errs error    // of files that could not be removed
}

// sparesPerDir is the number of files made in one directory, so that the runs
// which are deleted one day do not all lie in one place.
const sparesPerDir = 1024

// init prepares the pool of a store.
func (s *spares) init(store *Store, want int) {
	s.store = store
	s.Low, s.High = want/2, want
	s.Make = s.makeSpare
	s.Discard = func(f *os.File) { s.errs = errors.Join(s.errs, drop(f)) }
}

// makeSpare makes a file. Its directory may have been swept.
func (s *spares) makeSpare() (*os.File, error) {
	for again := false; ; again = true {
		path, err := s.next(again)
		if err != nil {
			return nil, err
		}
		f, err := makeFile(path, os.O_EXCL)
		if again || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
}

// next returns the path of the next file. It makes a directory if there is none,
// the present one is full, or the caller found that it is gone.
func (s *spares) next(gone bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" || s.made == sparesPerDir || gone {
		parent := s.store.sparesDir()
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return "", err
		}
		spread(parent)
		dir := filepath.Join(parent, rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		if s.dir != "" {
			s.past = append(s.past, s.dir)
		}
		s.dir, s.made = dir, 0
		s.removeEmpty()
	}
	s.made++
	return filepath.Join(s.dir, strconv.Itoa(s.made)+newExt), nil
}

// removeEmpty removes the earlier directories that have no files any more. The
// caller holds s.mu.
func (s *spares) removeEmpty() {
	var left []string
	for _, dir := range s.past {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = append(left, dir)
		}
	}
	s.past = left
}

// close removes the files that were not used, and their directories.
func (s *spares) close() error {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		s.past, s.dir = append(s.past, s.dir), ""
		s.removeEmpty() // what is left is swept
	}
	return s.errs
}

// makeFirst makes the file of the first segment of a run for which no spare is
// ready.
func (s *Store) makeFirst(id spool.RunID) (*os.File, error) {
	if s.spares.High > 0 {
		return s.spares.makeSpare()
	}
	return makeFile(s.newPath(id), os.O_TRUNC)
}

// drop removes a spare file, unless a sweep has removed it before.
func drop(f *os.File) error {
	err := os.Remove(f.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// sweepSpares deletes the spares that dead owners left. A live owner whose files
// it deletes makes others.
func (s *Store) sweepSpares(before time.Time) error {
	dirs, err := os.ReadDir(s.sparesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range dirs {
		dir := filepath.Join(s.sparesDir(), d.Name())
		if fi, err := os.Stat(dir); err != nil || fi.ModTime().After(before) {
			continue // it is in use, or gone
		}
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
