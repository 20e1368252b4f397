//go:build unix

// Package flock locks files against other processes of this machine.
//
// A lock belongs to an open file, not to a path or a process: it ends when the
// file is closed everywhere, and so with the process at the latest. A child
// between fork and exec may still hold a copy of the file, so a caller that
// needs the lock gone at once calls [Unlock] before it closes the file.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// poll is the time between two attempts of [Open] to lock a file.
const poll = 10 * time.Millisecond

// Lock waits for the exclusive lock of a file.
func Lock(f *os.File) error {
	_, err := change(f, syscall.LOCK_EX)
	return err
}

// TryLock takes the exclusive lock of a file. It reports false if another open
// file holds the lock.
func TryLock(f *os.File) (bool, error) { return change(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// TryShare takes the shared lock of a file. It reports false if another open
// file holds the exclusive lock.
func TryShare(f *os.File) (bool, error) { return change(f, syscall.LOCK_SH|syscall.LOCK_NB) }

// Unlock gives up the lock of a file.
func Unlock(f *os.File) error {
	_, err := change(f, syscall.LOCK_UN)
	return err
}

// Open opens a file, which it creates if needed, and waits for its exclusive
// lock until ctx ends. Closing the file gives up the lock. The file must not be
// removed: two processes could then lock different files of one name.
func Open(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, f); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// wait locks f. A context that cannot end is waited for in the system call.
func wait(ctx context.Context, f *os.File) error {
	if ctx.Done() == nil {
		return Lock(f)
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := TryLock(f); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// change calls flock(2). It reports false if the lock would block.
func change(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
