package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The reserve is a file without content. On a full disk it is truncated in
// steps, which frees space for the ends of the logs of the runs that fail then.
const (
	reserveName  = "reserve"
	reserveBytes = 1 << 20
	reserveStep  = 64 << 10
)

// KeepReserve creates the reserve of the state directory: space with which runs
// can end their logs on a full disk. Nothing else may use that space: while the
// reserve is not full, Append refuses all events but the ends of logs, and
// Create refuses new runs.
//
// A store has no reserve, and no such rule, before the first KeepReserve.
func (s *Store) KeepReserve() error {
	s.reserveMu.Lock()
	defer s.reserveMu.Unlock()
	err := s.fillReserve()
	s.short.Store(err != nil)
	if err != nil {
		return fmt.Errorf("keep a reserve for the ends of logs: %w", err)
	}
	return nil
}

// fillReserve gives the file its full size. The caller holds reserveMu.
func (s *Store) fillReserve() error {
	f, err := os.OpenFile(filepath.Join(s.dir, reserveName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() < reserveBytes {
		if err = allocate(f, reserveBytes); err != nil {
			err = errors.Join(err, f.Truncate(fi.Size()))
		}
	}
	return errors.Join(err, f.Close())
}

// spend frees a step of the reserve. It reports false if the reserve is empty.
func (s *Store) spend() bool {
	s.reserveMu.Lock()
	defer s.reserveMu.Unlock()
	path := filepath.Join(s.dir, reserveName)
	fi, err := os.Stat(path)
	if err != nil || fi.Size() == 0 || os.Truncate(path, max(0, fi.Size()-reserveStep)) != nil {
		return false
	}
	s.short.Store(true)
	return true
}

// isFull reports whether an error means that there is no space left.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// writeZeros allocates space where the system has no call for it.
func writeZeros(f *os.File, size int64) error {
	_, err := f.WriteAt(make([]byte, size), 0)
	return err
}
