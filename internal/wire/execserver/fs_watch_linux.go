package execserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// watchNames are the events that change the meaning of a name.
	watchNames = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// watchContents are the events that change the file behind a name.
	watchContents = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	// watchSelf are the events that end the watch of a directory.
	watchSelf = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED | unix.IN_Q_OVERFLOW
)

// inotify watches names in directories.
type inotify struct {
	file  *os.File
	names map[int32]map[string]uint32 // watch descriptor, name: events that count
}

// watchPaths watches the names along each missing path, as far as the
// directories exist, and along the present path, unless it is empty. It returns
// false if a missing path exists, the present one does not, a path contains a
// symbolic link, or the system has no watches left.
func watchPaths(missing []string, present string) (changes, bool) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, false
	}
	n := &inotify{file: os.NewFile(uintptr(fd), "inotify"), names: make(map[int32]map[string]uint32)}
	ok := true
	for _, path := range missing {
		exists, err := n.add(fd, path, watchNames)
		ok = ok && err == nil && !exists
	}
	if ok && present != "" {
		exists, err := n.add(fd, present, watchNames|watchContents)
		ok = err == nil && exists
	}
	if !ok {
		n.close()
		return nil, false
	}
	return n, true
}

var errNotPlain = errors.New("path is not made of directories")

// add watches the names of a path, starting at the root. It adds each watch
// before it checks whether the name exists, so that later changes are reported.
// The last name is watched for the given events.
func (n *inotify) add(fd int, path string, last uint32) (exists bool, err error) {
	dir := "/"
	for rest := strings.TrimPrefix(path, "/"); rest != ""; {
		name, after, more := strings.Cut(rest, "/")
		rest = after
		events := uint32(watchNames)
		if !more {
			events = last
		}
		const flags = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_MASK_ADD
		wd, err := unix.InotifyAddWatch(fd, dir, events|flags)
		if err != nil {
			return false, err
		}
		if n.names[int32(wd)] == nil {
			n.names[int32(wd)] = make(map[string]uint32)
		}
		n.names[int32(wd)][name] |= events
		dir = filepath.Join(dir, name)
		m, err := stat(atCWD, dir, false)
		switch {
		case errors.Is(err, unix.ENOENT):
			return false, nil
		case err != nil:
			return false, err
		case m.IsSymlink, more && !m.IsDirectory:
			return false, errNotPlain
		}
	}
	return true, nil
}

func (n *inotify) wait() bool {
	buf := make([]byte, 16<<10)
	for {
		got, err := n.file.Read(buf)
		if err != nil {
			return false // closed
		}
		if n.matters(buf[:got]) {
			return true
		}
	}
}

// matters reports whether one of the events concerns a watched name.
func (n *inotify) matters(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := int(binary.NativeEndian.Uint32(events[12:]))
		events = events[unix.SizeofInotifyEvent:]
		size = min(size, len(events))
		name, _, _ := bytes.Cut(events[:size], []byte{0})
		events = events[size:]
		if mask&watchSelf != 0 || mask&n.names[wd][string(name)] != 0 {
			return true
		}
	}
	return false
}

func (n *inotify) close() { _ = n.file.Close() }
