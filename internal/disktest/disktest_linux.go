// Package disktest gives tests small disks, which they can fill.
package disktest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// Small returns a directory that is a file system of its own, with options of tmpfs:
// "size=1m". A machine on which tests may not mount one ends the test.
func Small(tb testing.TB, options string) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := Mount(tb, dir, options); err != nil {
		skiptest.Missing(tb, "mount: %v", err)
	}
	return dir
}

// Mount makes a directory such a file system until the test ends. The error is that of a
// machine on which tests may not mount one.
func Mount(tb testing.TB, dir, options string) error {
	tb.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",mode=0700"); err != nil {
		return err
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Errorf("unmount: %v", err)
		}
	})
	return nil
}
