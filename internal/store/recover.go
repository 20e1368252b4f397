package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// Cut describes what recovery removed from the end of a log. The zero value means
// nothing.
type Cut struct {
	Bytes  int64
	Reason string
}

func (c *Cut) add(n int64, path string, off int64, err error) {
	if n == 0 {
		return
	}
	c.Bytes += n
	if c.Reason == "" {
		c.Reason = fmt.Sprintf("at offset %d of %s: %v", off, filepath.Base(path), err)
	}
}

// Recover opens the journal of a run whose owner died, for appending. It cuts off
// an interrupted write at the end, and everything from a corrupt record on. The
// journal of a complete run is sealed; a run whose completion was interrupted is
// completed.
//
// The caller must make sure that the owner is dead.
func (s *Store) Recover(id spool.RunID) (*Journal, Cut, error) {
	segs, err := s.segments(id)
	if err != nil {
		return nil, Cut{}, fmt.Errorf("recover run: %w", err)
	}
	j := &Journal{store: s, id: id, ending: true}
	if err := s.register(j); err != nil {
		return nil, Cut{}, fmt.Errorf("recover run %s: %w", id, err)
	}
	var cut Cut
	for done := false; !done; {
		if done, err = j.recoverFrom(segs, &cut); err != nil {
			s.unregister(j)
			var corrupt *CorruptError
			if errors.As(err, &corrupt) {
				return nil, Cut{}, err
			}
			return nil, Cut{}, fmt.Errorf("recover run %s: %w", id, err)
		}
		segs = segs[:len(segs)-1]
	}
	return j, cut, nil
}

// recoverFrom prepares the last segment for appending. It reports false if it
// deleted that segment because it had no head.
func (j *Journal) recoverFrom(segs []*segment, cut *Cut) (done bool, err error) {
	seg := segs[len(segs)-1]
	f, err := os.OpenFile(seg.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(filedPath(seg.path), os.O_RDWR, 0)
	}
	if err != nil {
		return false, err
	}
	defer func() {
		if j.file != f {
			err = errors.Join(err, f.Close())
		}
	}()
	content, err := readSegment(f)
	if err != nil {
		return false, openFault(err, "recover", j.id, seg.path)
	}
	size, fi, err := content.sizes()
	if err != nil {
		return false, err
	}
	t := tail{next: seg.first, info: spool.Info{ID: j.id, Created: fi.ModTime(), State: spool.StateRunning}}
	j.segs = segs
	if t.readFinal(content, size, j.id) {
		j.tail = t
		j.publish()
		return true, nil
	}
	if content.blocks != nil { // only complete runs are compressed
		return false, &CorruptError{Run: j.id, File: seg.path, Err: errors.New("it has no final description")}
	}
	stop := t.scan(f, size, j.id, seg.index.add)
	var failed *fs.PathError
	if errors.As(stop, &failed) {
		return false, stop
	}
	if t.off == 0 && !errors.Is(stop, errTorn) {
		// It may not be a segment at all: do not change it.
		return false, &CorruptError{Run: j.id, File: seg.path, Err: stop}
	}
	cut.add(size-t.off, seg.path, t.off, stop)
	if err := failpoint.Inject("store.recover"); err != nil {
		return false, err
	}
	if size > t.off {
		if err := f.Truncate(t.off); err != nil {
			return false, err
		}
	}
	if err := failpoint.Inject("store.recovered"); err != nil {
		return false, err
	}
	j.tail = t
	switch {
	case t.off == 0 && len(segs) > 1:
		return false, os.Remove(seg.path)
	case t.off == 0:
		j.segs = nil
		return true, j.beginIn(f, seg)
	case t.final > 0 && !t.sealed:
		footer := appendFooter(nil, t.final, t.salt)
		if err := writeAll(f, [][]byte{footer}, t.off, footerSize); err != nil {
			return false, err
		}
		j.tail.off += footerSize
		j.tail.sealed = true
	}
	if j.store.policy != SyncNone {
		if err := j.store.fsync(f); err != nil {
			return false, err
		}
	}
	if !j.tail.sealed {
		j.file = f
	}
	j.publish()
	return true, nil
}
