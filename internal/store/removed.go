package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/flock"
)

// removedName is a file with the ids of runs that any process has removed, a line each.
// Watchers read on in it.
const removedName = "removed"

// removedSize is how large that file may grow before it begins anew. Its readers go on in
// the next one. Tests make it smaller.
var removedSize int64 = 1 << 20

func (s *Store) removedPath() string { return filepath.Join(s.dir, removedName) }

// noteRemoved tells those who watch that runs were removed. Without it they see that when
// they list the runs again, so an error is no reason to fail.
func (s *Store) noteRemoved(ids []spool.RunID) {
	if len(ids) == 0 {
		return
	}
	var lines strings.Builder
	for _, id := range ids {
		lines.WriteString(string(id) + "\n")
	}
	f, err := s.lockRemoved()
	if err != nil {
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > removedSize {
		fresh := s.removedPath() + "." + s.nonce
		if os.WriteFile(fresh, []byte(lines.String()), 0o600) == nil && os.Rename(fresh, s.removedPath()) != nil {
			_ = os.Remove(fresh) // it is told to nobody
		}
		return
	}
	_, _ = f.WriteString(lines.String())
}

// lockRemoved opens the file of removed runs to write to its end. No other process does
// while it is open.
func (s *Store) lockRemoved() (*os.File, error) {
	for {
		f, err := os.OpenFile(s.removedPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock.Lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		same, err := isAt(f, s.removedPath())
		if err == nil && same {
			return f, nil
		}
		_ = f.Close() // another process has begun a new one
		if err != nil {
			return nil, err
		}
	}
}

// isAt reports whether a path names an open file.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// Removals are the runs that are removed while it is open, by any process.
type Removals struct {
	store *Store
	file  *os.File
	rest  []byte // a line that is not complete
}

// Removals begins to look for runs that are removed from now on.
func (s *Store) Removals() (*Removals, error) {
	r := &Removals{store: s}
	if err := r.open(); err != nil {
		return nil, err
	}
	if _, err := r.file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// open opens the file that is written to now.
func (r *Removals) open() (err error) {
	r.file, err = os.OpenFile(r.store.removedPath(), os.O_CREATE|os.O_RDONLY, 0o600)
	return err
}

// Close ends it.
func (r *Removals) Close() error { return r.file.Close() }

// Next returns the runs that were removed since the last time, without those that exist
// again.
func (r *Removals) Next() ([]spool.RunID, error) {
	var gone []spool.RunID
	for {
		// In this order: what is written to a file that has a successor was written before.
		same, err := isAt(r.file, r.store.removedPath())
		if err != nil {
			return gone, err
		}
		lines, err := io.ReadAll(r.file)
		if err != nil {
			return gone, err
		}
		lines = append(r.rest, lines...)
		for {
			line, rest, ok := bytes.Cut(lines, []byte("\n"))
			if !ok {
				break
			}
			lines = rest
			if id := spool.RunID(line); id.Check() == nil && !r.store.hasFirst(id) {
				gone = append(gone, id)
			}
		}
		r.rest = bytes.Clone(lines)
		if same {
			return gone, nil
		}
		old := r.file
		if err := r.open(); err != nil {
			r.file = old
			return gone, err
		}
		_ = old.Close() // it was only read
		r.rest = nil
	}
}

// hasFirst reports whether a run has its first segment, as one that was started again with
// the id of a removed one has.
func (s *Store) hasFirst(id spool.RunID) bool {
	return exists(newSegment(s.runsDir(), id, 1).path) || exists(newSegment(s.shardDir(id), id, 1).path)
}
