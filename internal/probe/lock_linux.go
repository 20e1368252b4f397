package probe

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spool-run/spool/internal/flock"
)

// TryLock locks a file in a directory and has a child try to lock it, too: while
// this process holds the lock, and after it gave it up. It removes the file.
func TryLock(ctx context.Context, dir string) error {
	f, err := os.CreateTemp(dir, ".probe-lock-")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	if ok, err := flock.TryLock(f); err != nil || !ok {
		if err == nil {
			err = errors.New("another process holds the lock")
		}
		return failed(cause(err), "flock")
	}
	for _, held := range []bool{true, false} {
		if !held {
			if err := flock.Unlock(f); err != nil {
				return failed(cause(err), "flock(LOCK_UN)")
			}
		}
		var locked bool
		if err := ask(command(ctx, "lock", f.Name()), &locked); err != nil {
			return err
		}
		switch {
		case held && locked:
			return failed(errors.New("two processes hold the lock of one file"), "flock")
		case !held && !locked:
			return failed(errors.New("a lock stays after it was given up"), "flock")
		}
	}
	return nil
}

func lockTask(args []string) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("usage: lock file")
	}
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return nil, failed(cause(err), "open")
	}
	locked, err := flock.TryLock(f)
	if err != nil {
		return nil, failed(cause(err), "flock")
	}
	return locked, nil
}
