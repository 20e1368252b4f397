package vfs

import (
	"errors"
	"slices"
	"strings"
	"sync"
)

// Overlay lets a guest change what it sees of a layer, and leaves the layer as
// it is: changes are collected in memory. A directory of the layer below
// cannot be renamed (EXDEV, as an overlay of Linux says too).
type Overlay struct {
	lower Layer
	upper *Memory

	mu   sync.Mutex
	gone map[string]bool // paths whose lower, and all below that, are hidden
}

// NewOverlay returns an overlay of a layer, which it owns. What it collects
// counts against the quota.
func NewOverlay(lower Layer, q *Quota) *Overlay {
	return &Overlay{lower: lower, upper: NewMemory(q), gone: make(map[string]bool)}
}

func (o *Overlay) close() error { return o.lower.close() }

// below describes what the lower layer has at a path, ENOENT if that is
// hidden. Callers hold o.mu.
func (o *Overlay) below(path string) (Info, error) {
	for p := path; ; {
		if o.gone[p] {
			return Info{}, ENOENT
		}
		if p == "" {
			break
		}
		p, _ = split(p)
	}
	return o.lower.lstat(path)
}

// look describes a path and says whether the upper layer has it. Callers hold
// o.mu.
func (o *Overlay) look(path string) (info Info, upper bool, err error) {
	info, err = o.upper.lstat(path)
	if err == nil && path != "" {
		return info, true, nil
	}
	if err != nil && !errors.Is(err, ENOENT) {
		return info, true, err
	}
	low, err := o.below(path)
	return low, false, err
}

func (o *Overlay) lstat(path string) (Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, _, err := o.look(path)
	return info, err
}

// dirs makes the directories that lead to a path in the upper layer as they
// are below. Callers hold o.mu.
func (o *Overlay) dirs(path string) error {
	dir, _ := split(path)
	if dir == "" {
		return nil
	}
	info, upper, err := o.look(dir)
	switch {
	case err != nil:
		return err
	case info.Mode.IsSymlink():
		return errLink
	case !info.Mode.IsDir():
		return ENOTDIR
	case upper:
		return nil
	}
	if err := o.dirs(dir); err != nil {
		return err
	}
	return o.copyUp(dir, info, false)
}

// copyUp brings what the lower layer has at a path into the upper one, where
// the directory is; with content if asked to. Callers hold o.mu.
func (o *Overlay) copyUp(path string, info Info, content bool) (err error) {
	switch {
	case info.Mode.IsDir():
		err = o.upper.mkdir(path, info.Mode)
	case info.Mode.IsSymlink():
		var target string
		if target, err = o.lower.readlink(path); err == nil {
			err = o.upper.symlink(target, path)
		}
	case info.Mode.IsFile():
		err = o.copyFile(path, info, content)
	default:
		err = EACCES
	}
	if err != nil {
		return err
	}
	return o.upper.chtimes(path, info.Atime, info.Mtime)
}

func (o *Overlay) copyFile(path string, info Info, content bool) (err error) {
	to, err := o.upper.open(path, Write|Create|Exclusive, info.Mode|0o200)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, to.Close())
		if err != nil {
			_ = o.upper.unlink(path)
		} else {
			_ = o.upper.chmod(path, info.Mode)
		}
	}()
	if !content {
		return nil
	}
	from, err := o.lower.open(path, Read, 0)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // was only read
	buf := make([]byte, 256<<10)
	for off := int64(0); ; {
		n, err := from.ReadAt(buf, off)
		if err != nil || n == 0 {
			return err
		}
		m, err := to.WriteAt(buf[:n], off)
		if err != nil {
			return err
		}
		if m < n {
			return ENOSPC
		}
		off += int64(n)
	}
}

// own makes sure that the upper layer has what is at a path. Callers hold
// o.mu.
func (o *Overlay) own(path string, content bool) error {
	info, upper, err := o.look(path)
	if err != nil || upper || path == "" {
		return err
	}
	if err := o.dirs(path); err != nil {
		return err
	}
	return o.copyUp(path, info, content)
}

func (o *Overlay) open(path string, flags Flags, perm Mode) (File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, upper, err := o.look(path)
	switch {
	case errors.Is(err, ENOENT) && flags&Create != 0:
		if err := o.dirs(path); err != nil {
			return nil, err
		}
		return o.upper.open(path, flags, perm)
	case err != nil:
		return nil, err
	case upper:
		return o.upper.open(path, flags, perm)
	case flags&(Create|Exclusive) == Create|Exclusive:
		return nil, EEXIST
	case info.Mode.IsSymlink():
		return nil, linkError(flags)
	case flags&(Write|Truncate) == 0 || info.Mode.IsDir():
		return o.lower.open(path, flags&^Create, perm)
	case info.Mode&0o222 == 0:
		return nil, EACCES
	}
	if err := o.own(path, flags&Truncate == 0); err != nil {
		return nil, err
	}
	return o.upper.open(path, flags, perm)
}

func (o *Overlay) readdir(path string) ([]Entry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list(path)
}

func (o *Overlay) list(path string) ([]Entry, error) {
	info, _, err := o.look(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode.IsDir():
		return nil, ENOTDIR
	}
	entries, err := o.upper.readdir(path)
	if err != nil && !errors.Is(err, ENOENT) {
		return nil, err
	}
	low, err := o.below(path)
	if err != nil || !low.Mode.IsDir() {
		return entries, nil
	}
	more, err := o.lower.readdir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range more {
		known := slices.ContainsFunc(entries, func(u Entry) bool { return u.Name == e.Name })
		if !known && !o.gone[join(path, e.Name)] {
			entries = append(entries, e)
		}
	}
	sortEntries(entries)
	return entries, nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (o *Overlay) mkdir(path string, perm Mode) error {
	return o.make(path, func() error { return o.upper.mkdir(path, perm) })
}

func (o *Overlay) symlink(target, path string) error {
	return o.make(path, func() error { return o.upper.symlink(target, path) })
}

func (o *Overlay) make(path string, do func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _, err := o.look(path)
	switch {
	case err == nil:
		return EEXIST
	case !errors.Is(err, ENOENT):
		return err
	}
	if err := o.dirs(path); err != nil {
		return err
	}
	return do()
}

func (o *Overlay) readlink(path string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, upper, err := o.look(path)
	switch {
	case err != nil:
		return "", err
	case upper:
		return o.upper.readlink(path)
	}
	return o.lower.readlink(path)
}

func (o *Overlay) unlink(path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, upper, err := o.look(path)
	switch {
	case err != nil:
		return err
	case info.Mode.IsDir():
		return EISDIR
	case upper:
		if err := o.upper.unlink(path); err != nil {
			return err
		}
	}
	o.hide(path)
	return nil
}

func (o *Overlay) rmdir(path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries, err := o.list(path)
	switch {
	case err != nil:
		return err
	case path == "":
		return EBUSY
	case len(entries) > 0:
		return ENOTEMPTY
	}
	if err := o.upper.rmdir(path); err != nil && !errors.Is(err, ENOENT) {
		return err
	}
	o.hide(path)
	return nil
}

// hide covers what the lower layer has at a path. Callers hold o.mu.
func (o *Overlay) hide(path string) {
	if _, err := o.below(path); err == nil {
		o.gone[path] = true
	}
}

func (o *Overlay) rename(from, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, _, err := o.look(from)
	switch {
	case err != nil:
		return err
	case from == "" || to == "":
		return EBUSY
	case from == to:
		return nil
	}
	if info.Mode.IsDir() {
		if strings.HasPrefix(to, from+"/") {
			return EINVAL
		}
		if _, err := o.below(from); err == nil {
			return EXDEV
		}
	}
	old, _, err := o.look(to)
	switch {
	case err == nil:
		entries, _ := o.list(to) // of a file there are none
		if err := replaceable(info.Mode, old.Mode, len(entries) == 0); err != nil {
			return err
		}
	case !errors.Is(err, ENOENT):
		return err
	}
	if err := o.own(from, true); err != nil {
		return err
	}
	if err := o.dirs(to); err != nil {
		return err
	}
	if err := o.upper.rename(from, to); err != nil {
		return err
	}
	o.hide(from)
	o.hide(to)
	return nil
}

func (o *Overlay) chmod(path string, perm Mode) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.own(path, true); err != nil {
		return err
	}
	return o.upper.chmod(path, perm)
}

func (o *Overlay) chtimes(path string, atime, mtime int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.own(path, true); err != nil {
		return err
	}
	return o.upper.chtimes(path, atime, mtime)
}

// ChangeKind says what happened to a file.
type ChangeKind string

// The kinds of change.
const (
	Added    ChangeKind = "added"
	Modified ChangeKind = "modified"
	Removed  ChangeKind = "removed"
)

// Change is one difference between an overlay and the layer below it.
type Change struct {
	Path   string     `json:"path"`
	Kind   ChangeKind `json:"change"`
	Mode   Mode       `json:"mode,omitempty"`
	Size   int64      `json:"size_bytes,omitempty"`
	Target string     `json:"target,omitempty"` // of a symbolic link
}

// Changes returns what was changed, by path. What is below a removed directory
// is not listed.
func (o *Overlay) Changes() ([]Change, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Change
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := o.upper.readdir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := join(dir, e.Name)
			info, err := o.upper.lstat(path)
			if err != nil {
				return err
			}
			c := Change{Path: path, Kind: Added, Mode: info.Mode, Size: info.Size}
			low, err := o.lower.lstat(path)
			if err == nil {
				c.Kind = Modified
			}
			switch {
			case info.Mode.IsDir():
				c.Size = 0
				if err != nil || !low.Mode.IsDir() {
					all = append(all, c)
				}
				if err := walk(path); err != nil {
					return err
				}
				continue
			case info.Mode.IsSymlink():
				c.Target, _ = o.upper.readlink(path)
			}
			all = append(all, c)
		}
		return nil
	}
	if err := walk(""); err != nil {
		return nil, err
	}
	for path := range o.gone {
		if _, _, err := o.look(path); errors.Is(err, ENOENT) {
			all = append(all, Change{Path: path, Kind: Removed})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// Open opens a file of the overlay to read, by the path of a [Change].
func (o *Overlay) Open(path string) (File, error) {
	f, err := o.open(path, Read, 0)
	return f, settle(err)
}
