package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The reserve is a file that only takes room, so that on a full disk there is
// some left for the ends of the logs of those whom that concerns. It is given
// up in steps.
const (
	reserveName  = "reserve"
	reserveBytes = 1 << 20
	reserveStep  = 64 << 10
)

// KeepReserve sees to it that the state directory has its reserve: room with
// which runs can end their logs on a disk that is full. Nothing else may use
// that room; so while there is no reserve, no event that is not an end can be
// appended, and no run created.
//
// Without a call of it there is no reserve and no such rule.
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

// fillReserve makes the file as large as it should be. The caller holds
// reserveMu.
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

// spend gives up a step of the reserve. It reports false if there was none.
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

// isFull reports an error that freeing room can help.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// writeZeros takes room where the system has no call for it.
func writeZeros(f *os.File, size int64) error {
	_, err := f.WriteAt(make([]byte, size), 0)
	return err
}
