package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// SyncPolicy says which events the death of the machine may lose. The death of
// the process loses none under any policy.
type SyncPolicy string

// The policies.
const (
	SyncNone     SyncPolicy = ""         // those the kernel has not written back
	SyncInterval SyncPolicy = "interval" // those of the last Options.SyncEvery
	SyncAlways   SyncPolicy = "always"   // none that Append has returned for
)

// syncEvery syncs until the store is closed.
func (s *Store) syncEvery(every time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// A journal keeps its error for the next writer. After an error
			// the directory stays dirty and is tried again.
			_ = s.syncDirty()
		case <-s.stop:
			return
		}
	}
}

// syncDirty syncs the files that were written since the last call.
func (s *Store) syncDirty() error {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	journals := make([]*Journal, 0, len(s.journals))
	for j := range s.journals {
		journals = append(journals, j)
	}
	s.mu.Unlock()

	var errs []error
	if dirty {
		if err := s.syncDir(s.runsDir()); err != nil {
			errs = append(errs, err)
			s.mu.Lock()
			s.dirty = true
			s.mu.Unlock()
		}
	}
	for _, j := range journals {
		if err := j.sync(); err != nil {
			errs = append(errs, err)
			j.mu.Lock()
			j.syncErr = err
			j.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// sync syncs the present file of the journal, and syncs and closes its old ones.
func (j *Journal) sync() error {
	j.mu.Lock()
	retired := j.retired
	j.retired = nil
	var current *os.File
	if j.dirty {
		current = j.file
	}
	j.dirty = false
	j.mu.Unlock()

	var errs []error
	for _, f := range retired {
		errs = append(errs, j.store.fsync(f), f.Close())
	}
	if current != nil {
		// A file that is closed by now was synced before.
		if err := j.store.fsync(current); !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sync run %s: %w", j.id, err)
	}
	return nil
}

// syncBegun applies the policy to a new segment.
func (s *Store) syncBegun(f *os.File) error {
	switch s.policy {
	case SyncAlways:
		if err := s.fsync(f); err != nil {
			return err
		}
		return s.syncDir(s.runsDir())
	case SyncInterval:
		s.mu.Lock()
		s.dirty = true
		s.mu.Unlock()
	}
	return nil
}

// syncDir makes the names in a directory durable.
func (s *Store) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(s.fsync(d), d.Close())
}
