package workspace

import (
	"bufio"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// seen is a file as a snapshot remembers it.
type seen struct {
	Path         string
	Mode         uint32
	Ino          uint64
	Size         int64
	Mtime, Ctime int64
}

// errTooMany is the error of a snapshot of too large a directory.
var errTooMany = fmt.Errorf("it has more than %d files", MaxSnapshot)

// scan calls do for everything below an open directory, but not for the state
// directory.
func scan(fd int, path string, skip uint64, n *int, do func(seen) error) error {
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // it is gone
		}
		if isDir(&st) && st.Ino == skip {
			continue
		}
		if *n++; *n > MaxSnapshot {
			return errTooMany
		}
		s := seen{Path: path + name, Mode: st.Mode, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}
		if isDir(&st) { // its times change with what is in it
			s.Size, s.Mtime, s.Ctime = 0, 0, 0
		}
		if err := do(s); err != nil {
			return err
		}
		if !isDir(&st) {
			continue
		}
		sub, err := openDir(fd, name)
		if err != nil { // it cannot be read, or is gone
			continue
		}
		err = scan(sub, s.Path+"/", skip, n, do)
		_ = unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

// stateDir returns the number of the state directory, which a snapshot leaves out.
func (w *Workspace) stateDir() uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Dir(filepath.Dir(w.dir)), &st) != nil {
		return 0
	}
	return st.Ino
}

// writeBefore writes the list of files in an open base.
func (w *Workspace) writeBefore(base int) (err error) {
	f, err := os.OpenFile(filepath.Join(w.dir, beforeFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := bufio.NewWriter(f)
	enc := gob.NewEncoder(b)
	n := 0
	if err := scan(base, "", w.stateDir(), &n, func(s seen) error { return enc.Encode(s) }); err != nil {
		return err
	}
	return b.Flush()
}

// snapshotChanges compares the base with the list.
func (w *Workspace) snapshotChanges() ([]ending, error) {
	f, err := os.Open(filepath.Join(w.dir, beforeFile))
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	defer f.Close()
	before := make(map[string]seen)
	dec := gob.NewDecoder(bufio.NewReader(f))
	for {
		var s seen
		if err := dec.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
		before[s.Path] = s
	}
	base, err := w.openBase()
	if err != nil {
		return nil, err
	}
	defer unix.Close(base)
	var list []ending
	add := func(op string, old, now seen) {
		c := change{path: cmp.Or(now.Path, old.Path), op: op}
		c.upper = unix.Stat_t{Mode: now.Mode, Size: now.Size}
		c.base = unix.Stat_t{Mode: old.Mode}
		list = append(list, ending{Change: c.public(), now: stamp{now.Ino, now.Ctime}})
	}
	n := 0
	err = scan(base, "", w.stateDir(), &n, func(now seen) error {
		old, ok := before[now.Path]
		delete(before, now.Path)
		switch {
		case !ok:
			add(Added, seen{}, now)
		case isDirMode(old.Mode) && isDirMode(now.Mode):
			if old.Mode&permissions != now.Mode&permissions {
				add(Modified, old, now)
			}
		case old != now:
			add(Modified, old, now)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare %s with its snapshot: %w", w.state.Base, err)
	}
	for _, old := range before {
		add(Deleted, old, seen{})
	}
	slices.SortFunc(list, func(a, b ending) int { return cmp.Compare(a.path(), b.path()) })
	return list, nil
}

func isDirMode(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }
