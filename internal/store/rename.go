package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/flock"
)

// nameExt ends the name of a file with the name of a run that was renamed. Its
// log has the name that it had before.
const nameExt = ".name"

// MaxName is the largest name of a run in bytes.
const MaxName = 4096

func (s *Store) namePath(id spool.RunID) string {
	return filepath.Join(s.runsDir(), string(id)+nameExt)
}

// Rename gives a run another name, which may be empty. The error is
// [spool.ErrNotFound] if there is no run.
func (s *Store) Rename(id spool.RunID, name string) error {
	if _, err := s.segments(id); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", spool.ErrNotFound, err)
		}
		return err
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w: a name of %d bytes, of at most %d", spool.ErrInvalid, len(name), MaxName)
	}
	// While runs are filed their names stay as they are.
	if err := os.MkdirAll(s.indexDir(), 0o700); err != nil {
		return err
	}
	lock, err := flock.Open(context.Background(), s.namesLock())
	if err != nil {
		return err
	}
	defer lock.Close()
	temp := s.newPath(id)
	if err := os.WriteFile(temp, []byte(name), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temp, s.namePath(id)); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// renamed sets the name that a run was given later, if it was.
func (s *Store) renamed(info *spool.Info) {
	b, err := os.ReadFile(s.namePath(info.ID))
	if errors.Is(err, fs.ErrNotExist) {
		b, err = os.ReadFile(filedPath(s.namePath(info.ID)))
	}
	if err == nil && len(b) <= MaxName {
		info.Name = strings.ToValidUTF8(string(b), "\ufffd")
	}
}

// addName is renamed for the description of a run that was renamed. A removal deletes
// the name last: so if there is none any more, neither is the run, and its description
// was read before.
func (r *summary) addName(s *Store) {
	name := s.namePath(r.info.ID)
	s.renamed(&r.info)
	if _, err := statSegment(name); !errors.Is(err, fs.ErrNotExist) || r.err != nil {
		return
	}
	if _, err := statSegment(r.segs[0].path); errors.Is(err, fs.ErrNotExist) {
		r.err = err
	}
}
