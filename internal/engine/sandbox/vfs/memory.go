package vfs

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MaxFileSize bounds a file in memory, independent of the quota.
const MaxFileSize = 1 << 31

// Memory is a tree of files in memory.
type Memory struct {
	quota *Quota

	mu   sync.RWMutex
	root *node
}

// inodes numbers the files in memory of this process.
var inodes atomic.Uint64

// NewMemory returns an empty tree. What is put into it counts against the
// quota, which may be nil.
func NewMemory(q *Quota) *Memory {
	return &Memory{quota: q, root: newNode(TypeDir | 0o755)}
}

// node is a file, a directory or a symbolic link. The tree's mu guards it.
type node struct {
	ino                 uint64
	mode                Mode
	atime, mtime, ctime int64
	data                []byte
	target              string
	children            map[string]*node // of a directory
	linked              bool             // is in the tree
	opens               int
}

func newNode(mode Mode) *node {
	now := time.Now().UnixNano()
	n := &node{ino: inodes.Add(1), mode: mode, atime: now, mtime: now, ctime: now, linked: true}
	if mode.IsDir() {
		n.children = make(map[string]*node)
	}
	return n
}

func (n *node) info() Info {
	i := Info{Ino: n.ino, Mode: n.mode, Nlink: 1, Size: int64(len(n.data)), Atime: n.atime, Mtime: n.mtime, Ctime: n.ctime}
	switch {
	case n.mode.IsDir():
		i.Nlink = 2
		i.Size = 4096
	case n.mode.IsSymlink():
		i.Size = int64(len(n.target))
	case !n.linked:
		i.Nlink = 0
	}
	return i
}

func (n *node) changed() {
	n.mtime = time.Now().UnixNano()
	n.ctime = n.mtime
}

// split returns the directory and the name of a path.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// find returns the node of a path. Callers hold m.mu.
func (m *Memory) find(path string) (*node, error) {
	n := m.root
	for path != "" {
		name, rest, _ := strings.Cut(path, "/")
		if n.mode.IsSymlink() {
			return nil, errLink
		}
		if !n.mode.IsDir() {
			return nil, ENOTDIR
		}
		next, ok := n.children[name]
		if !ok {
			return nil, ENOENT
		}
		n, path = next, rest
	}
	return n, nil
}

// parent returns the directory of a path and the name in it. Callers hold m.mu.
func (m *Memory) parent(path string) (*node, string, error) {
	dir, name := split(path)
	n, err := m.find(dir)
	switch {
	case err != nil:
		return nil, "", err
	case n.mode.IsSymlink():
		return nil, "", errLink
	case !n.mode.IsDir():
		return nil, "", ENOTDIR
	case !n.linked:
		return nil, "", ENOENT
	}
	return n, name, nil
}

// add makes a new entry. Callers hold m.mu.
func (m *Memory) add(path string, made *node) error {
	dir, name, err := m.parent(path)
	if err != nil {
		return err
	}
	if _, ok := dir.children[name]; ok || path == "" {
		return EEXIST
	}
	if err := m.quota.add(int64(len(made.target)), 1); err != nil {
		return err
	}
	dir.children[name] = made
	dir.changed()
	return nil
}

// drop takes an entry out of the tree. Callers hold m.mu.
func (m *Memory) drop(dir *node, name string) {
	n := dir.children[name]
	delete(dir.children, name)
	dir.changed()
	n.linked = false
	n.ctime = time.Now().UnixNano()
	m.free(n)
}

// free gives back what a node took, once it can no longer be reached. Callers
// hold m.mu.
func (m *Memory) free(n *node) {
	if n.linked || n.opens > 0 {
		return
	}
	_ = m.quota.add(-int64(len(n.data)+len(n.target)), -1) // giving back works
	n.data = nil
}

func (m *Memory) lstat(path string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(path)
	if err != nil {
		return Info{}, err
	}
	return n.info(), nil
}

func (m *Memory) readdir(path string) ([]Entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(path)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, ENOTDIR
	}
	entries := make([]Entry, 0, len(n.children))
	for name, c := range n.children {
		entries = append(entries, Entry{Name: name, Ino: c.ino, Type: c.mode & TypeMask})
	}
	sortEntries(entries)
	return entries, nil
}

func sortEntries(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
}

func (m *Memory) mkdir(path string, perm Mode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(path, newNode(TypeDir|perm&permMask))
}

func (m *Memory) symlink(target, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := newNode(TypeSymlink | 0o777)
	n.target = target
	return m.add(path, n)
}

func (m *Memory) readlink(path string) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.find(path)
	switch {
	case err != nil:
		return "", err
	case !n.mode.IsSymlink():
		return "", EINVAL
	}
	return n.target, nil
}

func (m *Memory) unlink(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(path)
	switch {
	case err != nil:
		return err
	case n.mode.IsDir():
		return EISDIR
	}
	return m.remove(path)
}

func (m *Memory) rmdir(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(path)
	switch {
	case err != nil:
		return err
	case path == "":
		return EBUSY
	case !n.mode.IsDir():
		return ENOTDIR
	case len(n.children) > 0:
		return ENOTEMPTY
	}
	return m.remove(path)
}

// remove takes an entry out of its directory. The caller holds m.mu.
func (m *Memory) remove(path string) error {
	dir, name, err := m.parent(path)
	if err != nil {
		return err
	}
	m.drop(dir, name)
	return nil
}

func (m *Memory) rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(from)
	if err != nil {
		return err
	}
	if from == "" || to == "" {
		return EBUSY
	}
	fromDir, fromName, err := m.parent(from)
	if err != nil {
		return err
	}
	toDir, toName, err := m.parent(to)
	if err != nil {
		return err
	}
	if n.mode.IsDir() && strings.HasPrefix(to, from+"/") {
		return EINVAL
	}
	if old, ok := toDir.children[toName]; ok {
		if old == n {
			return nil
		}
		if err := replaceable(n.mode, old.mode, len(old.children) == 0); err != nil {
			return err
		}
		m.drop(toDir, toName)
	}
	delete(fromDir.children, fromName)
	toDir.children[toName] = n
	fromDir.changed()
	toDir.changed()
	return nil
}

// replaceable says whether a rename may put one thing in place of another.
func replaceable(from, to Mode, empty bool) error {
	switch {
	case from.IsDir() && !to.IsDir():
		return ENOTDIR
	case !from.IsDir() && to.IsDir():
		return EISDIR
	case to.IsDir() && !empty:
		return ENOTEMPTY
	}
	return nil
}

func (m *Memory) chmod(path string, perm Mode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(path)
	if err != nil {
		return err
	}
	n.mode = n.mode&TypeMask | perm&permMask
	n.ctime = time.Now().UnixNano()
	return nil
}

func (m *Memory) chtimes(path string, atime, mtime int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(path)
	if err != nil {
		return err
	}
	if atime >= 0 {
		n.atime = atime
	}
	if mtime >= 0 {
		n.mtime = mtime
	}
	n.ctime = time.Now().UnixNano()
	return nil
}

func (m *Memory) close() error { return nil }
