package cli

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/spool-run/spool"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colour reports whether output to f may be coloured.
func colour(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// foreground reports whether this process may read from the terminal: the
// kernel stops a background job that reads.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// terminalSize returns the size of the first of the files that is a terminal.
func terminalSize(files ...*os.File) (spool.Size, bool) {
	for _, f := range files {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
			return spool.Size{Rows: uint16(rows), Cols: uint16(cols)}, true
		}
	}
	return spool.Size{}, false
}

// rawTerminal is a terminal in raw mode, until restore.
type rawTerminal struct {
	fd   int
	old  *term.State
	once sync.Once
}

func makeRaw(f *os.File) (*rawTerminal, error) {
	fd := int(f.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	return &rawTerminal{fd: fd, old: old}, nil
}

// restore restores the mode of the terminal. It may be called more than once,
// and on nil.
func (t *rawTerminal) restore() {
	if t == nil {
		return
	}
	t.once.Do(func() { _ = term.Restore(t.fd, t.old) }) // fails only if the terminal is gone
}
