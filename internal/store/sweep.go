package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

// Retention says which finished runs are kept. A zero field sets no bound.
type Retention struct {
	Age        time.Duration // of a run, since it ended or was imported
	TotalBytes int64         // of the logs of all runs together
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
	runs, err := s.summaries(time.Time{})
	if err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	var errs []error
	now := s.now()
	blobsBefore := now // when the oldest remaining run was created
	remain := func(r *sweepable) {
		if !r.info.Created.IsZero() && r.info.Created.Before(blobsBefore) {
			blobsBefore = r.info.Created
		}
	}
	var total int64
	var finished []sweepable
	for _, r := range runs {
		c := sweepable{summary: r, ended: r.info.Ended}
		for _, seg := range r.segs {
			if fi, err := os.Stat(seg.path); err == nil {
				c.bytes += fi.Size()
			} else if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		c.bytes += s.workspaceSize(&r.info)
		if at, err := time.Parse(time.RFC3339, r.info.Labels[LabelImported]); err == nil && at.After(c.ended) {
			c.ended = at
		}
		if c.ended.IsZero() {
			c.ended = r.wrote
		}
		total += c.bytes
		if r.err != nil || !r.sealed || keep != nil && keep(r.info.ID) {
			remain(&c)
			continue
		}
		finished = append(finished, c)
	}
	slices.SortFunc(finished, func(a, b sweepable) int {
		return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.info.ID, b.info.ID))
	})
	for i := range finished {
		c := &finished[i]
		old := p.Age > 0 && now.Sub(c.ended) > p.Age
		if !old && (p.TotalBytes <= 0 || total <= p.TotalBytes) {
			remain(c)
			continue
		}
		if err := s.Remove(c.info.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			remain(c)
			continue
		}
		total -= c.bytes
		swept.Bytes += c.bytes
		swept.Runs = append(swept.Runs, c.info.ID)
	}
	errs = append(errs, s.sweepNew(now.Add(-blobGrace)), s.sweepHidden(now.Add(-blobGrace)), s.sweepImports(now.Add(-blobGrace)), s.sweepWorkspaces(now.Add(-blobGrace)), s.sweepBlobs(blobsBefore.Add(-blobGrace), &swept))
	if err := errors.Join(errs...); err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	return swept, nil
}

// sweepable is a run that Sweep may delete.
type sweepable struct {
	summary
	ended time.Time
	bytes int64
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
