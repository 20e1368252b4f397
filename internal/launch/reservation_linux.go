package launch

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNoGroups reports that the launcher cannot track processes it does not
// start itself.
var ErrNoGroups = errors.New("cannot track a process forked by another process without control groups")

// Reservation is a control group for a leader that another process forks: a
// child of this process clones it into the group, as a child of this process.
// The caller must adopt the leader or abandon the reservation.
type Reservation struct {
	l     *Launcher
	slot  *slot
	dir   int
	tasks []int
}

// Reserve prepares a group for a leader that another process forks.
func (l *Launcher) Reserve(pids int) (*Reservation, error) {
	if l.groups == nil {
		return nil, ErrNoGroups
	}
	if pids > 0 && !l.Guarantees().Pids {
		return nil, ErrNoPidsLimit
	}
	s, err := l.groups.acquire(&Command{Pids: pids})
	if err != nil {
		return nil, fmt.Errorf("acquire control group: %w", err)
	}
	r := &Reservation{l: l, slot: s, dir: -1}
	if r.dir, err = unix.Open(s.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		r.Abandon()
		return nil, fmt.Errorf("open control group: %w", err)
	}
	if s.pids != "" && s.limit > 0 { // clone cannot place a child into a v1 group
		fd, err := unix.Open(filepath.Join(s.pids, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			r.Abandon()
			return nil, fmt.Errorf("open pids group: %w", err)
		}
		r.tasks = append(r.tasks, fd)
	}
	return r, nil
}

// Group returns the descriptor of the group to clone into.
func (r *Reservation) Group() int { return r.dir }

// Tasks returns descriptors of files to which the leader must first write "0",
// to enter groups that clone cannot place it into.
func (r *Reservation) Tasks() []int { return r.tasks }

// Adopt makes the process the leader of the tree in the group. It must be an
// unreaped child of this process.
func (r *Reservation) Adopt(pid int) (*Tree, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open pidfd of %d: %w", pid, err)
	}
	r.closeFiles()
	return &Tree{l: r.l, pid: pid, pidfd: fd, slot: r.slot}, nil
}

// Abandon kills every process in the group, now and later: the group is not
// reused.
func (r *Reservation) Abandon() {
	r.closeFiles()
	_ = r.slot.kill() // otherwise it ends with the launcher
	r.l.groups.release(r.slot)
}

func (r *Reservation) closeFiles() {
	for _, fd := range append(r.tasks, r.dir) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	r.dir, r.tasks = -1, nil
}
