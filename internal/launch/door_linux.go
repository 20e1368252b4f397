package launch

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// keptDoors is how many groups that are free stay open for the next starts, and
// how many that are in use.
const keptDoors = 16

// door is a group that is open: to look up its files costs more than to use
// them.
type door struct {
	dir     int // for cloning into it
	tasks   int // of the v1 pids group, for entering it; -1 if there is none
	counter int // how many are in it; -1 if nothing counts
}

// openDoor returns the door of a group that something is to be started in.
func (g *groups) openDoor(s *slot) (*door, error) {
	if s.door != nil {
		return s.door, nil
	}
	d, err := newDoor(s)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.door = d
	g.busy++
	return d, nil
}

// leaveDoor is called after a start. The door stays open for the count at the
// end, unless many others are.
func (g *groups) leaveDoor(s *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy > keptDoors {
		g.shutDoor(s, &g.busy)
	}
}

// readyDoor sees to the door of a group that is given back: it is open if the
// group can be used again and is one of the next. Callers hold g.mu.
func (g *groups) readyDoor(s *slot, again bool) {
	again = again && !g.closed && g.ready < keptDoors
	switch {
	case !again:
		g.shutDoor(s, &g.busy)
	case s.door != nil:
		g.busy--
		g.ready++
	default:
		if d, err := newDoor(s); err == nil { // or it is opened when it is needed
			s.door = d
			g.ready++
		}
	}
}

// shutDoor closes the door of a group, if it is open, which is counted there.
// Callers hold g.mu.
func (g *groups) shutDoor(s *slot, count *int) {
	if s.door != nil {
		s.door.close()
		s.door = nil
		*count--
	}
}

func newDoor(s *slot) (_ *door, err error) {
	d := &door{dir: -1, tasks: -1, counter: -1}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.dir, err = unix.Open(s.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if s.pids != "" {
		if d.tasks, err = unix.Open(filepath.Join(s.pids, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
	}
	if s.counter != "" {
		if d.counter, err = unix.Open(s.counter, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// isEmpty reports whether the counter says that nobody is there.
func (d *door) isEmpty() bool {
	var b [32]byte
	n, err := unix.Pread(d.counter, b[:], 0)
	return err == nil && strings.TrimSpace(string(b[:n])) == "0"
}

func (d *door) close() {
	for _, fd := range []int{d.dir, d.tasks, d.counter} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
