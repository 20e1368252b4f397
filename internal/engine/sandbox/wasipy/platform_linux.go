package wasipy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// canWork says whether there are worker processes on this platform.
const canWork = true

// supported says why the interpreter does not run here, if so.
func supported() error {
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return nil
	}
	return fmt.Errorf("there is no compiler for %s", runtime.GOARCH)
}

// mapping is a file in memory, read-only.
type mapping struct{ bytes []byte }

func mapFile(f *os.File) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("map a file: %w", err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a file: %w", err)
	}
	return &mapping{b}, nil
}

func (m *mapping) close() { _ = unix.Munmap(m.bytes) }

func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// lockFile waits until no other process holds the lock of that name.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	wait := time.NewTicker(10 * time.Millisecond)
	defer wait.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the cache: %w", err)
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
}
