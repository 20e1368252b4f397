package process

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// files are the descriptors of a process that is about to start: our ends and
// the child's. Ours do not block. A field is -1 where there is none.
type files struct {
	stdin, stdout, stderr int       // ours; a terminal is on stdin and stdout
	child                 []uintptr // descriptors 0, 1 and 2
	childEnds             []int     // to be closed here once the child has them
	stdoutTTY             bool      // stdout is a terminal, and stdin is not
}

func (f *files) closeChildEnds() {
	for _, fd := range f.childEnds {
		_ = unix.Close(fd)
	}
	f.childEnds = nil
}

func (f *files) close() {
	f.closeChildEnds()
	for _, fd := range []int{f.stdin, f.stdout, f.stderr} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// openPipes makes separate pipes for output, and one for input if the process
// is to have any.
func openPipes(stdin bool, null int) (*files, error) {
	f := &files{stdin: -1, stdout: -1, stderr: -1}
	in := null
	var p [2]int
	if stdin {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		in, f.stdin = p[0], p[1]
		f.childEnds = append(f.childEnds, in)
	}
	var out [2]int
	for i, ours := range []*int{&f.stdout, &f.stderr} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			f.close()
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		*ours, out[i] = p[0], p[1]
		f.childEnds = append(f.childEnds, p[1])
	}
	f.child = []uintptr{uintptr(in), uintptr(out[0]), uintptr(out[1])}
	return f, f.nonblock()
}

// openPTY makes a terminal of the given size.
func openPTY(size spool.Size) (*files, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	f := &files{stdin: -1, stdout: master, stderr: -1}
	if err := f.openSlave(size); err != nil {
		f.close()
		return nil, err
	}
	return f, f.nonblock()
}

func (f *files) openSlave(size spool.Size) error {
	if err := unix.IoctlSetPointerInt(f.stdout, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock terminal: %w", err)
	}
	// Asking the master works whatever is mounted on /dev/pts.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f.stdout), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("open terminal: %w", errno)
	}
	f.childEnds = []int{int(slave)}
	f.child = []uintptr{slave, slave, slave}
	if err := setSize(f.stdout, size); err != nil {
		return fmt.Errorf("size terminal: %w", err)
	}
	var err error
	if f.stdin, err = unix.FcntlInt(uintptr(f.stdout), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return fmt.Errorf("duplicate terminal: %w", err)
	}
	return nil
}

// openLineBuffered makes pipes, and a terminal in the place of the pipe for
// stdout. The terminal passes bytes on unchanged.
func openLineBuffered(stdin bool, null int) (*files, error) {
	f, err := openPipes(stdin, null)
	if err != nil {
		return nil, err
	}
	t, err := openPTY(engine.DefaultSize)
	if err != nil {
		f.close()
		return nil, err
	}
	slave := t.childEnds[0]
	_ = unix.Close(t.stdin) // input stays a pipe
	_ = unix.Close(f.stdout)
	ours, pipe := t.stdout, int(f.child[1])
	f.stdout, f.child[1], f.stdoutTTY = ours, uintptr(slave), true
	_ = unix.Close(pipe)
	for i, fd := range f.childEnds {
		if fd == pipe {
			f.childEnds[i] = slave
		}
	}
	mode, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		mode.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
		mode.Iflag &^= unix.ICRNL | unix.IXON
		err = unix.IoctlSetTermios(slave, unix.TCSETS, mode)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("set up terminal: %w", err)
	}
	return f, nil
}

func setSize(fd int, size spool.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}

// nonblock prepares our ends, and closes everything if it cannot.
func (f *files) nonblock() error {
	for _, fd := range []int{f.stdin, f.stdout, f.stderr} {
		if fd < 0 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // the only flag there is
			f.close()
			return fmt.Errorf("set non-blocking: %w", err)
		}
	}
	return nil
}
