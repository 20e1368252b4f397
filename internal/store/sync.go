package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// SyncPolicy says what the death of the machine may lose. The death of the
// process loses nothing under any of them.
type SyncPolicy string

// The policies.
const (
	SyncNone     SyncPolicy = ""         // what the kernel had not written back
	SyncInterval SyncPolicy = "interval" // the last Options.SyncEvery
	SyncAlways   SyncPolicy = "always"   // nothing that Append returned for
)

// syncEvery syncs until the store is closed.
func (s *Store) syncEvery(every time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// The error of a journal is kept for its next writer. That of
			// the directory leaves it dirty, to be tried again.
			_ = s.syncDirty()
		case <-s.stop:
			return
		}
	}
}

// syncDirty syncs what was written since the last time.
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

// sync makes durable what the journal holds now, and closes its old files.
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
		// If the file is closed by now, it was synced before.
		if err := j.store.fsync(current); !errors.Is(err, fs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sync run %s: %w", j.id, err)
	}
	return nil
}

// syncBegun applies the policy to a segment that was just made.
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
