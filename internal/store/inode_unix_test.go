//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

func inode(fi fs.FileInfo) uint64 { return uint64(fi.Sys().(*syscall.Stat_t).Ino) } //nolint:unconvert // not on every platform
