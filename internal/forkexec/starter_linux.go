//go:build amd64 || arm64

package forkexec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Starter starts programs. Its methods may be called at the same time.
type Starter struct {
	null int

	mu    sync.Mutex
	seats []*seats // those that are free; the last is the next
}

// NewStarter returns a starter, which must be closed after its last start. A process that
// makes it before it opens many files has cheaper starts.
func NewStarter() (_ *Starter, err error) {
	s := new(Starter)
	if s.null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	for range maxStarts {
		taken, err := takeSeats(s.null)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("duplicate a descriptor: %w", err), s.Close())
		}
		s.seats = append(s.seats, taken)
	}
	slices.Reverse(s.seats) // the lowest first
	return s, nil
}

// Close closes the descriptors of the starter.
func (s *Starter) Close() error {
	var errs []error
	for _, free := range s.seats {
		errs = append(errs, free.close())
	}
	return errors.Join(append(errs, unix.Close(s.null))...)
}

// Start starts a program and returns its process, a child of this one, with a descriptor of
// it, once the program executes. An error of the kernel is a [syscall.Errno], perhaps
// wrapped. With [ErrUnsupported] nothing was started: the kernel lacks something, the program
// needs more descriptors, or too many starts are under way.
func (s *Starter) Start(p *Program) (pid, pidfd int, err error) {
	nofile := SoftNofile()
	if nofile == nil || len(p.Files) > maxFiles {
		return 0, -1, ErrUnsupported
	}
	taken := s.take()
	if taken == nil {
		return 0, -1, ErrUnsupported
	}
	defer s.leave(taken, len(p.Files))
	if err := taken.fill(p.Files); err != nil {
		return 0, -1, fmt.Errorf("duplicate a descriptor: %w", err)
	}
	return start(p, taken, nofile)
}

// take returns seats, or nil if none are free.
func (s *Starter) take() *seats {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seats)
	if n == 0 {
		return nil
	}
	taken := s.seats[n-1]
	s.seats = s.seats[:n-1]
	return taken
}

// leave makes seats free for another start.
func (s *Starter) leave(taken *seats, count int) {
	if taken.empty(count, s.null) != nil {
		_ = taken.close() // whatever is in them must not stay open
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats = append(s.seats, taken)
}

func start(p *Program, taken *seats, nofile *unix.Rlimit) (pid, pidfd int, err error) {
	c := children.Get().(*child)
	defer func() {
		*c = child{}
		children.Put(c)
	}()
	*c = child{
		clone: cloneArgs{flags: cloneFlags, exitSignal: uint64(unix.SIGCHLD)},
		pidfd: -1, enter: p.Enter, seats: taken, files: len(p.Files), tty: p.TTY, nofile: nofile,
	}
	if p.Group > 0 {
		c.clone.flags |= unix.CLONE_INTO_CGROUP
		c.clone.cgroup = uint64(p.Group)
	}
	if err := c.setProgram(p); err != nil {
		return 0, -1, err
	}
	first, errno := c.fork()
	if errno != 0 {
		return 0, -1, &stepError{stepClone, syscall.Errno(errno)}
	}
	if c.errno == 0 {
		return int(first), int(c.pidfd), nil
	}
	_ = unix.Close(int(c.pidfd))
	reap(int(first))
	switch errno := syscall.Errno(c.errno); c.step {
	case stepDir, stepExec:
		return 0, -1, errno
	default:
		return 0, -1, &stepError{c.step, errno}
	}
}

// stepError is the error of a step that the standard library does not have or cannot fail in.
type stepError struct {
	step step
	err  syscall.Errno
}

func (e *stepError) Error() string { return stepText[e.step] + ": " + e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// Is reports that a kernel which lacks what a step needs does not support the start.
func (e *stepError) Is(target error) bool {
	lacks := e.err == unix.ENOSYS || e.err == unix.EINVAL || e.err == unix.EPERM
	return target == ErrUnsupported && lacks && (e.step == stepClone || e.step == stepFiles)
}

func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
