package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

// List yields a description of every run, newest first: the final one of
// complete runs, the newest one of the others. For a run whose file is corrupt
// it yields an error and what is known of the run, at least its ID.
func (s *Store) List() iter.Seq2[spool.Info, error] { return s.ListSince(time.Time{}) }

// ListSince is [Store.List] without the runs that were last written to before a
// time, whose files it does not open.
func (s *Store) ListSince(t time.Time) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		runs, err := s.summaries(t)
		if err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		slices.SortFunc(runs, func(a, b summary) int {
			return cmp.Or(b.info.Created.Compare(a.info.Created), cmp.Compare(a.info.ID, b.info.ID))
		})
		for _, r := range runs {
			if !yield(r.info, r.err) {
				return
			}
		}
	}
}

// summary describes a run by its last segment.
type summary struct {
	info   spool.Info
	sealed bool
	wrote  time.Time // when the last segment was last written to
	segs   []*segment
	err    error
}

// summaries returns the runs that were written to since a time, unordered.
func (s *Store) summaries(since time.Time) ([]summary, error) {
	runs, renamed, err := s.scanNames("")
	if err != nil {
		return nil, err
	}
	all := make([]summary, 0, len(runs))
	for id, segs := range runs {
		if !since.IsZero() {
			if fi, err := os.Stat(segs[len(segs)-1].path); err == nil && fi.ModTime().Before(since) {
				continue
			}
		}
		r := summarize(id, segs)
		if renamed[id] {
			s.renamed(&r.info)
		}
		if errors.Is(r.err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

func summarize(id spool.RunID, segs []*segment) summary {
	r := summary{info: spool.Info{ID: id}, segs: segs}
	for i := len(segs) - 1; i >= 0; i-- {
		t, wrote, err := readTail(id, segs[i])
		if i == len(segs)-1 {
			r.wrote = wrote
		}
		if err != nil {
			r.err = err
		}
		if t.off == 0 && err == nil && i > 0 {
			continue // its head is being written
		}
		if t.off == 0 {
			t.info = spool.Info{ID: id, Created: wrote, State: spool.StateRunning}
		}
		r.info, r.sealed = t.info, t.sealed
		r.info.Last, r.info.Bytes = t.next-1, t.bytes
		break
	}
	return r
}

// readTail reads the end of a segment. A torn end is not an error.
func readTail(id spool.RunID, seg *segment) (tail, time.Time, error) {
	t := tail{next: seg.first}
	f, err := os.Open(seg.path)
	if err != nil {
		return t, time.Time{}, fmt.Errorf("list run %s: %w", id, err)
	}
	defer f.Close()
	fi, err := statOwn(f)
	if err != nil {
		return t, time.Time{}, fmt.Errorf("list run %s: %w", id, err)
	}
	if !t.readFinal(f, fi.Size(), id) {
		if err := t.scan(f, fi.Size(), id, nil); err != nil {
			return t, fi.ModTime(), fault(err, id, seg.path, t.off)
		}
	}
	return t, fi.ModTime(), nil
}
