package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/flock"
)

// The files of a workspace.
const (
	stateFile  = "workspace.json"
	upperDir   = "upper"
	workDir    = "work"
	beforeFile = "before"
	endedFile  = "ended"
	journal    = "apply.json"
	lockFile   = ".lock" // beside the workspaces
)

// Workspace is the workspace of one run.
type Workspace struct {
	dir   string
	state state
}

// state is the content of [stateFile].
type state struct {
	Kind      string `json:"kind"`
	Base      string `json:"base"`
	Dev       uint64 `json:"dev"`
	Ino       uint64 `json:"ino"`
	Began     int64  `json:"began"` // nanoseconds, by the clock of the file system
	Ended     bool   `json:"ended,omitempty"`
	Discarded bool   `json:"discarded,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"` // of the upper directory at the end
	// Noted is the mark of the changes that the last note of a turn said.
	Noted string `json:"noted,omitempty"`
	// Undone are files of the base that an apply moved, and moved back.
	Undone []undone `json:"undone,omitempty"`
}

// undone is a file whose time of change is that of an apply which was undone.
type undone struct {
	Ino uint64 `json:"ino"`
	Was int64  `json:"was"`
	Is  int64  `json:"is"`
}

// Create makes the workspace of a run in a directory, which must not exist. The base
// must have no symbolic links in its path.
func Create(dir, base, kind string) (_ *Workspace, err error) {
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", base, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", base, err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(dir))
		}
	}()
	w := &Workspace{dir: dir, state: state{Kind: kind, Base: base, Dev: st.Dev, Ino: st.Ino}}
	marker := dir
	if kind == Overlay {
		marker = filepath.Join(dir, upperDir)
		for _, name := range []string{marker, filepath.Join(dir, workDir)} {
			if err := os.Mkdir(name, 0o700); err != nil {
				return nil, fmt.Errorf("make a workspace: %w", err)
			}
		}
		// The upper directory is what the run sees as its directory.
		if os.Geteuid() == 0 {
			if err := os.Lchown(marker, int(st.Uid), int(st.Gid)); err != nil {
				return nil, fmt.Errorf("make a workspace: %w", err)
			}
		}
		if err := unix.Chmod(marker, st.Mode&0o7777); err != nil {
			return nil, fmt.Errorf("make a workspace: %w", err)
		}
	}
	var made unix.Stat_t
	if err := unix.Lstat(marker, &made); err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	w.state.Began = made.Ctim.Nano()
	if kind == Snapshot {
		if err := w.writeBefore(fd); err != nil {
			return nil, fmt.Errorf("make a snapshot of %s: %w", base, err)
		}
	}
	return w, w.save()
}

// Open opens the workspace of a run. The error is [ErrNone] if there is none.
func Open(dir string) (*Workspace, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	w := &Workspace{dir: dir}
	if err := json.Unmarshal(b, &w.state); err != nil {
		return nil, fmt.Errorf("open workspace: %s: %w", stateFile, err)
	}
	return w, nil
}

// Kind returns the kind of the workspace.
func (w *Workspace) Kind() string { return w.state.Kind }

// Base returns the directory that the workspace is of.
func (w *Workspace) Base() string { return w.state.Base }

// save writes the state.
func (w *Workspace) save() error { return writeFile(filepath.Join(w.dir, stateFile), &w.state) }

// writeFile replaces a file with the JSON of a value, at once. As the logs of runs by
// default, it outlives the process, and not for sure the machine.
func writeFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lock keeps other processes from applying and discarding changes.
func (w *Workspace) lock(ctx context.Context) (*os.File, error) {
	f, err := flock.Open(ctx, filepath.Join(filepath.Dir(w.dir), lockFile))
	if err != nil {
		return nil, fmt.Errorf("lock workspaces: %w", err)
	}
	return f, nil
}

// openBase opens the base, which must be the directory that it was.
func (w *Workspace) openBase() (int, error) {
	fd, err := unix.Open(w.state.Base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", w.state.Base, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("stat %s: %w", w.state.Base, err)
	}
	if st.Ino != w.state.Ino || st.Dev != w.state.Dev {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("%s is another directory than when the run began", w.state.Base)
	}
	return fd, nil
}

// Remove deletes a workspace, also one that was not completed.
func Remove(dir string) error {
	if err := removeTree(unix.AT_FDCWD, dir); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// removeTree deletes what has a name in a directory, with all that is in it. It makes
// directories writable that are not, as those of overlays.
func removeTree(at int, name string) error {
	err := unix.Unlinkat(at, name, 0)
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM, unix.EACCES:
	default:
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
		return nil
	}
	fd, err := openDir(at, name)
	if err == unix.EACCES && unix.Fchmodat(at, name, 0o700, 0) == nil {
		fd, err = openDir(at, name)
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(fd, 0o700) // the removal of an entry reports the error
	}
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeTree(fd, n); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// Stored returns the disk space that the changes of a run took at its end, without
// looking at them.
func Stored(dir string) int64 {
	w, err := Open(dir)
	if err != nil {
		return 0
	}
	return w.state.Bytes
}

// Size measures the disk space that the changes in an overlay take now.
func (w *Workspace) Size() (int64, error) {
	if w.state.Kind != Overlay {
		return 0, nil
	}
	fd, err := openDir(unix.AT_FDCWD, filepath.Join(w.dir, upperDir))
	if err != nil {
		return 0, fmt.Errorf("measure workspace: %w", err)
	}
	defer unix.Close(fd)
	var total int64
	linked := make(map[uint64]bool) // several names of one file
	err = measure(fd, &total, linked)
	if err != nil {
		return 0, fmt.Errorf("measure workspace: %w", err)
	}
	return total, nil
}

// measure adds up what is in a directory. The run may change it meanwhile.
func measure(fd int, total *int64, linked map[uint64]bool) error {
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // it is gone
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			*total += st.Blocks * 512
			if sub, err := openDir(fd, name); err == nil {
				err = measure(sub, total, linked)
				_ = unix.Close(sub)
				if err != nil {
					return err
				}
			}
			continue
		}
		if st.Nlink > 1 {
			if linked[st.Ino] {
				continue
			}
			linked[st.Ino] = true
		}
		*total += st.Blocks * 512
	}
	return nil
}

// openDir opens a directory that is not a symbolic link.
func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// readNames reads the names in an open directory from its start.
func readNames(fd int) ([]string, error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read directory: %w", err)
		}
		if n <= 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
