package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardTyped discards typed input that was not read yet.
func discardTyped(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // fails only without a terminal
}

// hideTyped turns echo off and returns a function that restores it.
func hideTyped(f *os.File) (undo func()) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {} // without a terminal there is no echo
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &hidden) // fails only if the terminal is gone
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
