package wasipy

import (
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

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // which Linux has
	return time.Duration(ts.Nano())
}
