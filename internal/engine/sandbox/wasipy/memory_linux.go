package wasipy

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// cowMemory is the memory of one interpreter: an image that all of them share
// until they write to it, and room to grow behind.
type cowMemory struct {
	region []byte // all that may ever be used
	size   uint64
	limit  uint64
}

// cowAllocator gives an instance its memory. It serves one instance.
type cowAllocator struct {
	image *image // nil for an empty memory
	limit uint64 // of the whole, in bytes
	got   *cowMemory
	err   error
}

// Allocate implements [experimental.MemoryAllocator].
func (a *cowAllocator) Allocate(_, maxSize uint64) experimental.LinearMemory {
	m := &cowMemory{limit: min(a.limit, maxSize)}
	if a.image != nil {
		m.limit = max(m.limit, a.image.Size)
		m.size = a.image.Size
	}
	a.got = m
	m.region, a.err = unix.Mmap(-1, 0, int(m.limit), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if a.err != nil {
		a.err = fmt.Errorf("reserve memory of an interpreter: %w", a.err)
		return m
	}
	if a.image != nil {
		a.err = m.restore(a.image)
	}
	return m
}

// restore makes the memory what the image was.
func (m *cowMemory) restore(im *image) error {
	at := unsafe.Pointer(&m.region[im.From])
	// Zero pages of the image are not in its file: those are the stack, which
	// is empty, and the heap that was never used.
	_, err := unix.MmapPtr(int(im.file.Fd()), 0, at, uintptr(im.To-im.From),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map the image of an interpreter: %w", err)
	}
	// A huge page would copy much memory that is never written to.
	_ = unix.Madvise(m.region[:im.Size], unix.MADV_NOHUGEPAGE)
	// The pages that every script writes to are copied at once rather than
	// one fault after the other. Older kernels refuse, and fault.
	for _, r := range im.Hot {
		if unix.Madvise(m.region[r.From:r.To], unix.MADV_POPULATE_WRITE) != nil {
			break
		}
	}
	return nil
}

// Reallocate implements [experimental.LinearMemory]: it fails at the limit,
// which the guest sees as a MemoryError.
func (m *cowMemory) Reallocate(size uint64) []byte {
	if m.region == nil || size > m.limit {
		return nil
	}
	m.size = max(m.size, size)
	return m.region[:m.size:m.limit]
}

// Free implements [experimental.LinearMemory].
func (m *cowMemory) Free() {
	if m.region != nil {
		_ = unix.Munmap(m.region)
		m.region = nil
	}
}

// share returns a copy of a file's contents in memory that cannot be changed
// any more, so that what happens to the file in the cache is of no matter.
func share(name string, contents []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memory to share: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(contents); err != nil {
		f.Close()
		return nil, fmt.Errorf("fill memory to share: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal memory to share: %w", err)
	}
	return f, nil
}
