package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardTyped forgets what was typed and not read yet.
func discardTyped(f *os.File) {
	_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what is no terminal has nothing to forget
}
