//go:build unix

package fdpass

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzParse checks that a control message has no more descriptors than fit into
// it. It closes none: they are numbers of the fuzzer.
func FuzzParse(f *testing.F) {
	f.Add(unix.UnixRights(3, 4))
	f.Add(unix.UnixRights(5)[:10])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, control []byte) {
		fds, err := Parse(control)
		if err == nil && 4*len(fds) > len(control) {
			t.Errorf("%d descriptors in %d bytes", len(fds), len(control))
		}
	})
}
