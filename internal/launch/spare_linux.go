package launch

import (
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// spare is a descriptor that is closed when descriptors run out, so that trees
// can still be counted and killed.
var spare = spareFD{fd: -1}

type spareFD struct {
	mu sync.Mutex // held while it is in use
	fd int        // -1 if there is none
}

func (s *spareFD) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill()
}

// refill opens the descriptor if possible. The caller holds mu.
func (s *spareFD) refill() {
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
		spare.mu.Lock()
		if spare.fd >= 0 {
			_ = unix.Close(spare.fd)
			spare.fd = -1
			if fd, err = unix.Open(file, flag|unix.O_CLOEXEC, 0); err == nil {
				return fd, func() {
					_ = unix.Close(fd)
					spare.refill()
					spare.mu.Unlock()
				}, nil
			}
		}
		spare.refill()
		spare.mu.Unlock()
	}
	return -1, nil, &fs.PathError{Op: "open", Path: file, Err: err}
}
