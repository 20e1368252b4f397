package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// Retention says which finished runs are kept. A zero field sets no bound.
type Retention struct {
	Age        time.Duration // of a run, since it ended or was imported
	TotalBytes int64         // of the logs of all runs together
	// Compress is how long after its end the log of a run is compressed.
	// Negative means never. Sweep does not look at it.
	Compress time.Duration
}

// Swept describes what a sweep has removed.
type Swept struct {
	Runs  []spool.RunID
	Blobs int
	Bytes int64 // of both
}

// blobGrace is how long a blob is kept in any case. It covers the time between
// storing the blob and logging its event, and clocks that differ.
const blobGrace = time.Hour

// Sweep deletes complete runs: those that ended longer than p.Age ago, and
// then those that ended first until the rest is within p.TotalBytes. Runs for
// which keep returns true stay, and so do runs that are not complete; the bytes
// of both count. A nil keep protects none.
//
// It also deletes the blobs to which no run can refer, because they were last
// stored before the oldest remaining run was created. After an error it
// continues with the rest.
func (s *Store) Sweep(p Retention, keep func(spool.RunID) bool) (Swept, error) {
	var swept Swept
	n, err := s.scanUnfiled()
	if err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	now := s.now()
	w := sweep{store: s, policy: p, keep: keep, now: now, names: n}
	for more, known := true, 0; more; known = len(w.gone) {
		if more, err = w.once(&swept); err != nil {
			return swept, fmt.Errorf("sweep: %w", err)
		}
		s.unindex(w.gone[known:])
	}
	before := now.Add(-blobGrace)
	errs := append(w.errs, s.sweepNew(before), s.sweepSpares(before), s.sweepHidden(before), s.sweepImports(before), s.sweepWorkspaces(before), s.sweepBlobs(w.blobsBefore.Add(-blobGrace), &swept))
	if err := errors.Join(errs...); err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	return swept, nil
}

// sweepBatch is how many filed runs a sweep looks at and deletes at a time.
const sweepBatch = 4096

// sweep is one [Store.Sweep].
type sweep struct {
	store  *Store
	policy Retention
	keep   func(spool.RunID) bool
	now    time.Time
	names  *names
	gone   []index.Key // removed runs that the index has
	errs   []error

	blobsBefore time.Time // when the oldest remaining run was created
}

// once deletes what the policy says among the runs that are not filed and the
// filed ones that ended first. It reports whether there may be more.
func (w *sweep) once(swept *Swept) (more bool, err error) {
	s := w.store
	w.blobsBefore = w.now
	snapshot, err := s.openIndex()
	if err != nil {
		if w.names, err = s.scanAll(); err != nil {
			return false, err
		}
	}
	var finished []sweepable
	var total int64
	for _, r := range s.summaries(w.names, time.Time{}) {
		c := sweepable{id: r.info.ID, created: r.info.Created, ended: r.ages(), bytes: s.workspaceSize(&r.info)}
		for _, seg := range r.segs {
			if fi, err := statSegment(seg.path); err == nil {
				c.bytes += fi.Size()
			} else if !errors.Is(err, fs.ErrNotExist) {
				w.errs = append(w.errs, err)
			}
		}
		total += c.bytes
		if r.err != nil || !r.sealed || w.keep != nil && w.keep(c.id) {
			w.remain(c.created)
			continue
		}
		finished = append(finished, c)
	}
	if snapshot != nil {
		filed, size := w.filed(snapshot, total)
		finished, total = append(finished, filed...), total+size
		more = len(filed) > 0
		if err := snapshot.Close(); err != nil {
			return false, err
		}
	}
	slices.SortFunc(finished, func(a, b sweepable) int {
		return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.id, b.id))
	})
	for i := range finished {
		c := &finished[i]
		old := w.policy.Age > 0 && w.now.Sub(c.ended) > w.policy.Age
		if !old && (w.policy.TotalBytes <= 0 || total <= w.policy.TotalBytes) {
			w.remain(c.created)
			more = more && !c.filed // the filed ones that ended later remain, too
			continue
		}
		if err := w.remove(c); err != nil {
			w.errs = append(w.errs, err)
			w.remain(c.created)
			more = false
			continue
		}
		total -= c.bytes
		swept.Bytes += c.bytes
		swept.Runs = append(swept.Runs, c.id)
	}
	return more, nil
}

// filed returns the filed runs that ended first, as far as the policy may delete
// them, and the size of all filed runs. The others have a size, too.
func (w *sweep) filed(snapshot *index.Snapshot, others int64) (first []sweepable, total int64) {
	before := int64(math.MinInt64)
	if w.policy.Age > 0 {
		before = w.now.Add(-w.policy.Age).UnixNano()
	}
	a := snapshot.Ages(before, sweepBatch)
	workspaces := w.store.filedWorkspaces(w.names)
	if w.policy.TotalBytes > 0 && a.Bytes+workspaces+others > w.policy.TotalBytes {
		a = snapshot.Ages(math.MaxInt64, sweepBatch)
	}
	gone := make(map[string]bool, len(w.gone)) // in an earlier round
	for _, k := range w.gone {
		gone[k.ID] = true
	}
	total = a.Bytes + workspaces
	w.remain(time.Unix(0, a.Oldest))
	for _, e := range a.Old {
		id := spool.RunID(e.ID)
		if gone[e.ID] || w.names.runs[id] != nil {
			total -= e.Bytes
			continue
		}
		c := sweepable{id: id, created: time.Unix(0, e.Created), ended: time.Unix(0, e.Ended), bytes: e.Bytes, filed: true, entry: e}
		if w.keep != nil && w.keep(id) {
			w.remain(c.created)
			continue
		}
		first = append(first, c)
	}
	return first, total
}

func (w *sweep) remain(created time.Time) {
	if !created.IsZero() && created.Before(w.blobsBefore) {
		w.blobsBefore = created
	}
}

// remove deletes a run, which may be gone already.
func (w *sweep) remove(c *sweepable) error {
	s := w.store
	if !c.filed {
		delete(w.names.runs, c.id)
		if err := s.Remove(c.id); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	w.gone = append(w.gone, c.entry.Key())
	if c.entry.Flags&index.Segmented == 0 {
		return s.removeSegments(c.id, []*segment{newSegment(s.runsDir(), c.id, 1)})
	}
	if err := s.Remove(c.id); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweepable is a run that Sweep may delete.
type sweepable struct {
	id      spool.RunID
	created time.Time
	ended   time.Time
	bytes   int64
	filed   bool
	entry   index.Entry // if it is filed
}

// ages returns from when on a run ages.
func (r *summary) ages() time.Time {
	ended := r.info.Ended
	if at, err := time.Parse(time.RFC3339, r.info.Labels[LabelImported]); err == nil && at.After(ended) {
		ended = at
	}
	if ended.IsZero() {
		ended = r.wrote
	}
	return ended
}

// sweepNew deletes the files of runs that did not start because their owner died.
func (s *Store) sweepNew(before time.Time) error {
	files, err := filepath.Glob(filepath.Join(s.runsDir(), "*"+newExt))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if fi, err := os.Stat(file); err == nil && fi.ModTime().Before(before) {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
