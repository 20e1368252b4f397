package reactor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Set is an epoll descriptor. The zero value is none; see [NewSet].
type Set struct{ fd int }

// NewSet returns an empty set, which must be closed, or given to a [Reactor].
func NewSet() (Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return Set{}, fmt.Errorf("create epoll descriptor: %w", err)
	}
	return Set{fd}, nil
}

// Open reports whether there is a set.
func (s Set) Open() bool { return s.fd > 0 } // 0 is standard input

// Add watches a descriptor for input. Its events carry the index.
func (s Set) Add(fd, index int) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("watch descriptor: %w", err)
	}
	return nil
}

// Change watches a descriptor for other events. With none, only its end is
// reported.
func (s Set) Change(fd, index int, events uint32) {
	e := unix.EpollEvent{Events: events, Fd: int32(index)}
	_ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_MOD, fd, &e) // cannot fail on one that was added
}

// Remove stops watching a descriptor. Closing it is not enough: a child that
// is being forked may hold a copy until it executes its program.
func (s Set) Remove(fd int) { _ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// Close closes the set.
func (s *Set) Close() {
	if s.Open() {
		_ = unix.Close(s.fd)
		s.fd = 0
	}
}
