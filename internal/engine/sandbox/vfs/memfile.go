package vfs

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

func (m *Memory) open(path string, flags Flags, perm Mode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(path)
	if errors.Is(err, ENOENT) && flags&Create != 0 && flags&Directory == 0 {
		n = newNode(TypeFile | perm&permMask)
		if err = m.add(path, n); err != nil {
			return nil, err
		}
		return m.opened(n, flags), nil
	}
	switch {
	case err != nil:
		return nil, err
	case flags&(Create|Exclusive) == Create|Exclusive:
		return nil, EEXIST
	case n.mode.IsSymlink():
		return nil, linkError(flags)
	case n.mode.IsDir() && flags&(Write|Truncate|Append|Create) != 0:
		return nil, EISDIR
	case !n.mode.IsDir() && flags&Directory != 0:
		return nil, ENOTDIR
	case flags&Write != 0 && n.mode&0o222 == 0, flags&Read != 0 && n.mode&0o444 == 0:
		return nil, EACCES
	}
	if flags&Truncate != 0 && flags&Write != 0 {
		m.resize(n, 0)
		n.changed()
	}
	return m.opened(n, flags), nil
}

// linkError is that of opening a symbolic link itself.
func linkError(flags Flags) error {
	if flags&Directory != 0 {
		return ENOTDIR
	}
	return ELOOP
}

func (m *Memory) opened(n *node, flags Flags) *memFile {
	n.opens++
	return &memFile{tree: m, node: n, flags: flags}
}

// resize changes the size of a file; growing has been paid for. Callers hold
// m.mu.
func (m *Memory) resize(n *node, size int64) {
	old := int64(len(n.data))
	if size <= old {
		_ = m.quota.add(size-old, 0) // giving back works
		clear(n.data[size:])
		n.data = n.data[:size]
		if int64(cap(n.data)) > 4*size+4096 {
			n.data = slices.Clone(n.data)
		}
		return
	}
	n.data = slices.Grow(n.data, int(size-old))[:size]
	clear(n.data[old:])
}

// memFile is an open file or directory.
type memFile struct {
	tree   *Memory
	node   *node
	flags  Flags
	closed atomic.Bool
}

func (f *memFile) check(want Flags) error {
	switch {
	case f.closed.Load():
		return EBADF
	case f.node.mode.IsDir() && want != 0:
		return EISDIR
	case want&^f.flags != 0:
		return EBADF
	}
	return nil
}

func (f *memFile) Stat() (Info, error) {
	f.tree.mu.RLock()
	defer f.tree.mu.RUnlock()
	if err := f.check(0); err != nil {
		return Info{}, err
	}
	return f.node.info(), nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.tree.mu.RLock()
	defer f.tree.mu.RUnlock()
	if err := f.check(Read); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, EINVAL
	}
	if off >= int64(len(f.node.data)) {
		return 0, nil
	}
	return copy(p, f.node.data[off:]), nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	if off < 0 {
		return 0, EINVAL
	}
	return f.write(p, off)
}

func (f *memFile) Append(p []byte) (int, int64, error) {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	n, err := f.write(p, int64(len(f.node.data)))
	return n, int64(len(f.node.data)), err
}

// write writes what the quota allows. Callers hold the tree's mu.
func (f *memFile) write(p []byte, off int64) (int, error) {
	if err := f.check(Write); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= MaxFileSize {
		return 0, EFBIG
	}
	p = p[:min(int64(len(p)), MaxFileSize-off)]
	size := int64(len(f.node.data))
	if grow := off + int64(len(p)) - size; grow > 0 {
		got := f.tree.quota.upTo(grow)
		if got < grow {
			p = p[:max(0, int64(len(p))-(grow-got))]
			if len(p) == 0 { // nothing fits, the hole before it included
				_ = f.tree.quota.add(-got, 0)
				return 0, ENOSPC
			}
		}
		f.tree.resize(f.node, size+got)
	}
	copy(f.node.data[off:], p)
	f.node.changed()
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	if err := f.check(Write); err != nil {
		return err
	}
	switch {
	case size < 0:
		return EINVAL
	case size > MaxFileSize:
		return EFBIG
	}
	if grow := size - int64(len(f.node.data)); grow > 0 {
		if err := f.tree.quota.add(grow, 0); err != nil {
			return err
		}
	}
	f.tree.resize(f.node, size)
	f.node.changed()
	return nil
}

func (f *memFile) Sync() error { return f.check(0) }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return EBADF
	}
	f.tree.mu.Lock()
	defer f.tree.mu.Unlock()
	f.node.opens--
	f.node.atime = max(f.node.atime, time.Now().UnixNano())
	f.tree.free(f.node)
	return nil
}
