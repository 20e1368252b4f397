//go:build !linux

package wasipy

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/tetratelabs/wazero/experimental"
)

var errPlatform = errors.New("the embedded interpreter needs Linux")

const canWork = false

func supported() error { return errPlatform }

// Work is the life of a worker process. There are none on this platform.
func Work([]string) int { return 1 }

func newCell(Config, string) *isolate.Cell { return nil }

type mapping struct{ bytes []byte }

func mapFile(*os.File) (*mapping, error)           { return nil, errPlatform }
func (m *mapping) close()                          {}
func inode(fs.FileInfo) uint64                     { return 0 }
func share(string, []byte) (*os.File, error)       { return nil, errPlatform }
func confinement() (protections, missing []string) { return nil, []string{"Linux"} }

type cowMemory struct {
	region      []byte
	size, limit uint64
}

type cowAllocator struct {
	image *image
	limit uint64
	got   *cowMemory
	err   error
}

// Allocate implements [experimental.MemoryAllocator].
func (a *cowAllocator) Allocate(_, _ uint64) experimental.LinearMemory {
	a.got, a.err = &cowMemory{}, errPlatform
	return a.got
}

// Reallocate implements [experimental.LinearMemory].
func (m *cowMemory) Reallocate(size uint64) []byte { return make([]byte, size) }

// Free implements [experimental.LinearMemory].
func (m *cowMemory) Free() {}

type pool struct{}

func newPool(Config, *prepared) *pool { return nil }
func (pl *pool) close()               {}

type remoteRunner struct {
	pool   *pool
	config contextConfig
	fs     vfs.FS
}

func (r *remoteRunner) close()                    {}
func (r *remoteRunner) settle() *spool.ProcessUse { return nil }
func (r *remoteRunner) run(context.Context, guest.Script, *direct) (guest.Result, error) {
	return guest.Result{}, errPlatform
}

func prepareOutside(context.Context, Config, string, func(guest.Progress)) error { return errPlatform }

func (i *instance) recycle() bool             { return false }
func (i *instance) difference() (delta, bool) { return nil, false }

// threadTime is not known: there are no workers.
func threadTime() time.Duration { return 0 }
