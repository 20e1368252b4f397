package launch

import (
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// reserve is a descriptor that is closed when descriptors run out, so that trees
// can still be counted and killed.
var reserve = reserveFD{fd: -1}

type reserveFD struct {
	mu sync.Mutex // held while it is in use
	fd int        // -1 if there is none
}

func (s *reserveFD) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill()
}

// refill opens the descriptor if possible. The caller holds mu.
func (s *reserveFD) refill() {
	if s.fd >= 0 {
		return
	}
	var err error
	if s.fd, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		s.fd = -1 // try again next time
	}
}

// openControl opens a control file, if necessary in place of the spare
// descriptor.
func openControl(file string, flag int) (fd int, closeFile func(), err error) {
	fd, err = unix.Open(file, flag|unix.O_CLOEXEC, 0)
	if err == nil {
		return fd, func() { _ = unix.Close(fd) }, nil
	}
	if err == unix.EMFILE {
		reserve.mu.Lock()
		if reserve.fd >= 0 {
			_ = unix.Close(reserve.fd)
			reserve.fd = -1
			if fd, err = unix.Open(file, flag|unix.O_CLOEXEC, 0); err == nil {
				return fd, func() {
					_ = unix.Close(fd)
					reserve.refill()
					reserve.mu.Unlock()
				}, nil
			}
		}
		reserve.refill()
		reserve.mu.Unlock()
	}
	return -1, nil, &fs.PathError{Op: "open", Path: file, Err: err}
}
