//go:build !linux || !(amd64 || arm64)

package pyodide

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// errPlatform means that the protections need Linux.
var errPlatform = unavailable("use the embedded back end", errors.New("not available on this platform"))

// Backend is the Pyodide back end; there is none on this platform.
type Backend struct{}

var _ guest.Backend = (*Backend)(nil)

// New returns a back end that says that it is not available.
func New(Options) *Backend { return &Backend{} }

// Name returns [Name].
func (*Backend) Name() string { return Name }

// Prepare reports that the platform is not supported.
func (*Backend) Prepare(context.Context, guest.Setup) (guest.Prewarm, error) {
	return guest.Prewarm{}, errPlatform
}

// Wall reports that the platform is not supported.
func (*Backend) Wall(context.Context, guest.Setup) (guest.Wall, error) {
	return guest.Wall{}, errPlatform
}

// Open reports that the platform is not supported.
func (*Backend) Open(context.Context, guest.Options) (guest.Context, error) {
	return nil, errPlatform
}

// Doctor reports that the platform is not supported.
func (*Backend) Doctor(context.Context) []guest.Finding {
	return []guest.Finding{{Name: "platform", Text: errPlatform.Error()}}
}

// Close does nothing.
func (*Backend) Close() error { return nil }

// RunRole does nothing: this platform has no such process.
func RunRole([]string) int { return 1 }

func inode(fs.FileInfo) uint64 { return 0 }
