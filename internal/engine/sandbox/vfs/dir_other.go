//go:build !linux

package vfs

import "fmt"

// Dir is a directory of this machine, which only Linux can offer safely yet.
type Dir struct{ Layer }

// OpenDir fails: only Linux resolves paths beneath a directory in one step.
func OpenDir(path string, _ *Quota) (*Dir, error) {
	return nil, fmt.Errorf("open directory %q: directories of this machine can be offered on Linux only: %w", path, ENOTSUP)
}

// Close does nothing.
func (*Dir) Close() error { return nil }
