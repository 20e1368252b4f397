package launch

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxOpenFree limits the free groups whose files stay open for the next starts, and
// maxOpenBusy the groups in use: live runs are as many as files can be open.
const (
	maxOpenFree = 64
	maxOpenBusy = 16
)

// groupFiles are the open files of a group: opening them costs more than using
// them.
type groupFiles struct {
	dir     int // to clone into
	tasks   int // to enter the v1 pids group; -1 if there is none
	counter int // number of processes; -1 if there is no counter
	events  int // number of refused forks; -1 if there is none
}

// openFiles returns the open files of a group for a start.
func (g *groups) openFiles(s *slot) (*groupFiles, error) {
	if s.files != nil {
		return s.files, nil
	}
	d, err := openGroup(s)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.files = d
	g.busy++
	return d, nil
}

// leaveOpen is called after a start. The files stay open for the count at the
// end, unless too many groups are open.
func (g *groups) leaveOpen(s *slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy > maxOpenBusy {
		g.closeFiles(s, &g.busy)
	}
}

// prepareFiles opens or closes the files of a released group: they are open if the
// group can be reused and is one of the next. The caller holds g.mu.
func (g *groups) prepareFiles(s *slot, again bool) {
	full := g.ready == maxOpenFree
	switch {
	case !again || g.closed:
		g.closeFiles(s, &g.busy)
	case s.files != nil:
		if full { // the first free group is the last to be used
			i := slices.IndexFunc(g.free, func(s *slot) bool { return s.files != nil })
			g.closeFiles(g.free[i], &g.ready)
		}
		g.busy--
		g.ready++
	case !full:
		if d, err := openGroup(s); err == nil { // otherwise they are opened when needed
			s.files = d
			g.ready++
		}
	}
}

// closeFiles closes the files of a group if they are open and decrements the count.
// The caller holds g.mu.
func (g *groups) closeFiles(s *slot, count *int) {
	if s.files != nil {
		s.files.close()
		s.files = nil
		*count--
	}
}

func openGroup(s *slot) (_ *groupFiles, err error) {
	d := &groupFiles{dir: -1, tasks: -1, counter: -1, events: -1}
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
	if s.events != "" {
		if d.events, err = unix.Open(s.events, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == unix.ENOENT {
			d.events, err = -1, nil // an old kernel
		}
	}
	return d, err
}

// isEmpty reports whether the counter is zero.
func (d *groupFiles) isEmpty() bool {
	var b [32]byte
	n, err := unix.Pread(d.counter, b[:], 0)
	return err == nil && strings.TrimSpace(string(b[:n])) == "0"
}

func (d *groupFiles) close() {
	for _, fd := range []int{d.dir, d.tasks, d.counter, d.events} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
