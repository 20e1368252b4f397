package execserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// tree is the file system as one request sees it: the whole one, or the part
// that its sandbox allows. Errors wrap an errno.
type tree interface {
	open(path string, flags int, perm uint32, l links) (*os.File, error)
	// mkdir makes a directory, and with all its missing parents, too.
	mkdir(path string, all bool, l links) error
	stat(path string, l links) (metadata, error)
	// statEntry is stat, with links followed, for a name in an open directory.
	statEntry(dir *os.File, path, name string) (metadata, error)
	info(path string, l links) (os.FileInfo, error)
	// realPath resolves all symbolic links of a path that exists.
	realPath(path string) (string, error)
	readlink(path string) (string, error)
	symlink(target, path string) error
	remove(path string, recursive bool, l links) error
	// shows reports whether a path may be listed.
	shows(path string) bool
}

// links is what happens to symbolic links in a path.
type links int

const (
	followLinks links = iota
	keepLast          // the last element is not followed
	refuseLinks       // a link is an error
)

// treeFor returns the file system for a method. The sandbox of the request
// decides.
func treeFor(raw json.RawMessage, writes bool) (tree, error) {
	s, err := parseSandbox(raw)
	if err != nil {
		return nil, err
	}
	if s == nil || s.files == nil {
		return host{}, nil
	}
	if err := s.checkDynamic(); err != nil {
		return nil, err
	}
	if !writes && s.files.readsAll() {
		return host{}, nil // as codex does, whatever else is in the sandbox
	}
	r, err := s.resolveRules("", rpc.CodeInvalidRequest)
	if err != nil {
		return nil, err
	}
	if r.writesAll {
		return host{}, nil
	}
	if s.landlock {
		return nil, errLandlock
	}
	return newView(r.withPlatform())
}

// checkReads refuses a sandbox that restricts reads, for methods that read files
// of the user.
func checkReads(raw json.RawMessage) error {
	t, err := treeFor(raw, false)
	if err != nil {
		return err
	}
	if _, whole := t.(host); !whole {
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts reads: this method reads files of the user's home directory")
	}
	return nil
}

// host is the whole file system.
type host struct{}

func (host) open(path string, flags int, perm uint32, l links) (*os.File, error) {
	switch l {
	case refuseLinks:
		return openNoFollow(path, flags, perm)
	case keepLast:
		flags |= syscall.O_NOFOLLOW
	}
	return os.OpenFile(path, flags, os.FileMode(perm))
}

func (h host) mkdir(path string, all bool, l links) error {
	switch {
	case l == refuseLinks:
		return mkdirNoFollow(path, all)
	case all:
		return mkdirAll(h, path)
	}
	return os.Mkdir(path, 0o777)
}

func (host) stat(path string, l links) (metadata, error) {
	if l != refuseLinks {
		return stat(atCWD, path, l == followLinks)
	}
	dir, name, err := openParentNoFollow(path)
	if err != nil {
		return metadata{}, err
	}
	defer dir.Close()
	return stat(int(dir.Fd()), name, false)
}

func (host) statEntry(dir *os.File, _, name string) (metadata, error) {
	return stat(int(dir.Fd()), name, true)
}

func (host) info(path string, l links) (os.FileInfo, error) {
	if l == followLinks {
		return os.Stat(path)
	}
	return os.Lstat(path)
}

func (host) realPath(path string) (string, error) {
	if _, err := os.Stat(path); err != nil { // returns the errno of the system
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

func (host) readlink(path string) (string, error) { return os.Readlink(path) }
func (host) symlink(target, path string) error    { return os.Symlink(target, path) }
func (host) shows(string) bool                    { return true }

func (host) remove(path string, recursive bool, l links) error {
	if l == refuseLinks {
		return removeNoFollow(path)
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() && recursive:
		return os.RemoveAll(path)
	case info.IsDir():
		return syscall.Rmdir(path)
	}
	return syscall.Unlink(path)
}
