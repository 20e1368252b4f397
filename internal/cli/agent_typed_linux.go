package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardTyped forgets what was typed and not read yet.
func discardTyped(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what is no terminal has nothing to forget
}

// hideTyped does not show what is typed until it is undone.
func hideTyped(f *os.File) (undo func()) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {} // what is no terminal shows nothing
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &hidden) // one that is gone shows nothing
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
