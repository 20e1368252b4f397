package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardTyped discards typed input that was not read yet.
func discardTyped(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // fails only without a terminal
}

// setTyping sets the mode of a terminal in which a user types, and returns a
// function that restores the mode before it. Ctrl-C and Ctrl-Z stay signals.
func setTyping(f *os.File, mode typing) (undo func()) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || mode == typeLine {
		return nil
	}
	set := *before
	set.Lflag &^= unix.ECHO
	if mode == typeKey {
		set.Lflag &^= unix.ICANON
		set.Cc[unix.VMIN], set.Cc[unix.VTIME] = 1, 0
	}
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &set) // fails only if the terminal is gone
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
