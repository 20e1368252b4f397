//go:build amd64 || arm64

package forkexec

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// maxStarts is how many starts of a [Starter] have seats at once.
	maxStarts = 3
	// maxFiles is how many descriptors a start has seats for: all that most programs get.
	maxFiles = 3
)

// seats are low descriptors of this process in which it puts those of a program. The child
// copies the table of descriptors up to the last seat, and no further.
type seats struct {
	fds  [maxFiles]int
	last int // the highest of them
}

// takeSeats makes seats, none of which is the place of a descriptor in a program. While
// they are free they hold /dev/null.
func takeSeats(null int) (*seats, error) {
	s := new(seats)
	for i := range s.fds {
		fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, maxFiles)
		if err != nil {
			return nil, errors.Join(err, closeAll(s.fds[:i]))
		}
		s.fds[i], s.last = fd, max(s.last, fd)
	}
	return s, nil
}

// fill puts descriptors in the seats.
func (s *seats) fill(files []uintptr) error {
	for i, fd := range files {
		if err := unix.Dup3(int(fd), s.fds[i], unix.O_CLOEXEC); err != nil {
			return err
		}
	}
	return nil
}

// empty takes out so many descriptors: what this process holds of a pipe is no longer open
// than its owner wants.
func (s *seats) empty(count, null int) error {
	for _, fd := range s.fds[:count] {
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			return err
		}
	}
	return nil
}

func (s *seats) close() error { return closeAll(s.fds[:]) }

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
