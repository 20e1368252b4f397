//go:build !linux

package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spool-run/spool"
)

var errPlatform = fmt.Errorf("%w: workspaces are not available on this platform", spool.ErrUnsupported)

// Workspace is the workspace of one run; there is none on this platform.
type Workspace struct{}

// Create reports that the platform is not supported.
func Create(string, string, string) (*Workspace, error) { return nil, errPlatform }

// Open reports that there is no workspace.
func Open(string) (*Workspace, error) { return nil, ErrNone }

// Kind is never called.
func (*Workspace) Kind() string { return "" }

// Base is never called.
func (*Workspace) Base() string { return "" }

// Remove deletes a directory.
func Remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.RemoveAll(dir)
}

// Stored returns zero.
func Stored(string) int64 { return 0 }

// Size is never called.
func (*Workspace) Size() (int64, error) { return 0, errPlatform }

// End is never called.
func (*Workspace) End() (*Summary, error) { return nil, errPlatform }

// Note is never called.
func (*Workspace) Note() (*Summary, error) { return nil, errPlatform }

// Changes is never called.
func (*Workspace) Changes(context.Context, spool.ChangeQuery) (spool.ChangePage, error) {
	return spool.ChangePage{}, errPlatform
}

// Apply is never called.
func (*Workspace) Apply(context.Context, []string, bool) (spool.ChangePage, error) {
	return spool.ChangePage{}, errPlatform
}

// Discard is never called.
func (*Workspace) Discard(context.Context) error { return errPlatform }
