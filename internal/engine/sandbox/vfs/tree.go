package vfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tree is a file system made of layers that are mounted in it. Mount before
// the first use.
type Tree struct {
	mounts []mount // the longest paths first; the last is the root
}

type mount struct {
	path  string // without slashes at its ends; the root is ""
	layer Layer
	dev   uint64
}

var _ FS = (*Tree)(nil)

// NewTree returns a file system with a layer at its root. The tree owns its
// layers and closes them.
func NewTree(root Layer) *Tree {
	return &Tree{mounts: []mount{{layer: root, dev: 1}}}
}

// Mount puts a layer at a path, in place of what is there. Directories that
// lead to it are made where the tree can be changed.
func (t *Tree) Mount(path string, l Layer) error {
	names, err := absolute(path)
	if err != nil {
		return fmt.Errorf("mount at %q: %w", path, err)
	}
	clean := strings.Join(names, "/")
	if clean == "" || slices.Contains(names, ".") || slices.Contains(names, "..") {
		return fmt.Errorf("mount at %q: %w", path, EINVAL)
	}
	for _, m := range t.mounts {
		if m.path == clean {
			return fmt.Errorf("mount at %q: %w", path, EBUSY)
		}
	}
	if err := t.MkdirAll(path); err != nil {
		return fmt.Errorf("mount at %q: %w", path, err)
	}
	t.mounts = append(t.mounts, mount{path: clean, layer: l, dev: uint64(len(t.mounts) + 1)})
	slices.SortStableFunc(t.mounts, func(a, b mount) int { return len(b.path) - len(a.path) })
	return nil
}

// Close closes the layers.
func (t *Tree) Close() error {
	var errs []error
	for _, m := range t.mounts {
		errs = append(errs, m.layer.close())
	}
	return errors.Join(errs...)
}

// MkdirAll makes a directory and those that lead to it, as far as they are
// not there.
func (t *Tree) MkdirAll(path string) error {
	names, err := absolute(path)
	if err != nil {
		return err
	}
	for i := range names {
		at := "/" + strings.Join(names[:i+1], "/")
		info, err := t.Stat(at, true)
		switch {
		case errors.Is(err, ENOENT):
			err = t.Mkdir(at, 0o755)
		case err == nil && !info.Mode.IsDir():
			err = ENOTDIR
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteFile makes or replaces a file.
func (t *Tree) WriteFile(path string, content []byte, perm Mode) (err error) {
	f, err := t.Open(path, Write|Create|Truncate, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for off := 0; off < len(content); {
		n, err := f.WriteAt(content[off:], int64(off))
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// ReadFile returns the content of a file of at most limit bytes, EFBIG if
// there is more.
func (t *Tree) ReadFile(path string, limit int64) ([]byte, error) { return ReadFile(t, path, limit) }

// ReadFile returns the content of a file of at most limit bytes, EFBIG if
// there is more.
func ReadFile(fsys FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path, Read, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Mode.IsDir():
		return nil, EISDIR
	case info.Size > limit:
		return nil, EFBIG
	}
	content := make([]byte, 0, info.Size+1)
	for {
		n, err := f.ReadAt(content[len(content):cap(content)], int64(len(content)))
		content = content[:len(content)+n]
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return content, nil
		case int64(len(content)) > limit:
			return nil, EFBIG
		}
		content = slices.Grow(content, 512)
	}
}

// place is where a resolved path leads: a path in a layer.
type place struct {
	mount *mount
	path  string
	dots  string // "." or ".." if the path ended so
	slash bool   // the path ended with a slash: only a directory will do
	info  *Info  // what is there, if that was looked at on the way
}

// at returns the layer of a clean path.
func (t *Tree) at(clean string) place {
	for i := range t.mounts {
		m := &t.mounts[i]
		if m.path == "" {
			return place{mount: m, path: clean}
		}
		if rest, ok := strings.CutPrefix(clean, m.path); ok && (rest == "" || rest[0] == '/') {
			return place{mount: m, path: strings.TrimPrefix(rest, "/")}
		}
	}
	panic("vfs: a tree without a root") // NewTree makes one
}

// covers reports whether something is mounted at the path or below it.
func (t *Tree) covers(p place) bool {
	clean := p.path
	if p.mount.path != "" {
		clean = strings.TrimSuffix(p.mount.path+"/"+p.path, "/")
	}
	for _, m := range t.mounts {
		if m.path == clean || clean == "" || strings.HasPrefix(m.path, clean+"/") {
			return true
		}
	}
	return false
}

// absolute splits an absolute path into its components.
func absolute(path string) ([]string, error) {
	switch {
	case path == "":
		return nil, ENOENT
	case len(path) > MaxPath:
		return nil, ENAMETOOLONG
	case path[0] != '/' || strings.IndexByte(path, 0) >= 0:
		return nil, EINVAL
	}
	return components(path)
}

func components(path string) ([]string, error) {
	names := make([]string, 0, 8)
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > MaxName {
			return nil, ENAMETOOLONG
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// resolve finds where a path leads. What its end names need not exist. With
// follow, a symbolic link there is followed too, and in any case if a slash
// comes after it.
func (t *Tree) resolve(path string, follow bool) (place, error) {
	return t.find(path, follow || strings.HasSuffix(path, "/"))
}

// resolveName finds where the name at the end of a path is, whatever that is.
func (t *Tree) resolveName(path string) (place, error) { return t.find(path, false) }

func (t *Tree) find(path string, follow bool) (place, error) {
	// Most paths hold no dots and no links, and one look tells.
	if plain(path) {
		p := t.at(path[1:])
		info, err := p.mount.layer.lstat(p.path)
		switch {
		case err == nil && !(follow && info.Mode.IsSymlink()):
			p.info = &info
			return p, nil
		case errors.Is(err, ENOENT):
			return p, nil
		case err != nil && !errors.Is(err, errLink):
			return p, err
		}
	}
	names, err := absolute(path)
	if err != nil {
		return place{}, err
	}
	slash := strings.HasSuffix(path, "/")
	last := ""
	if n := len(names); n > 0 && (names[n-1] == "." || names[n-1] == "..") {
		last = names[n-1]
	}
	follow = follow || last != ""
	p, err := t.walk(names, follow)
	p.dots, p.slash = last, slash
	if err == nil && slash {
		if info, err := p.mount.layer.lstat(p.path); err == nil && !info.Mode.IsDir() {
			return p, ENOTDIR
		}
	}
	return p, err
}

// plain reports whether a path is absolute and short, and has no component
// that is empty, too long, or begins with a dot.
func plain(path string) bool {
	if len(path) < 2 || len(path) > MaxPath || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	length := 0
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c == 0, c == '/' && length == 0, c == '.' && length == 0:
			return false
		case c == '/':
			length = 0
		default:
			if length++; length > MaxName {
				return false
			}
		}
	}
	return true
}

// walk resolves component by component.
func (t *Tree) walk(names []string, follow bool) (place, error) {
	var clean []string
	links := 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		switch name {
		case ".":
			continue
		case "..":
			clean = clean[:max(0, len(clean)-1)]
			continue
		}
		clean = append(clean, name)
		p := t.at(strings.Join(clean, "/"))
		info, err := p.mount.layer.lstat(p.path)
		end := len(names) == 0
		switch {
		case errors.Is(err, errLink): // another process replaced it by a link
			return p, EAGAIN
		case errors.Is(err, ENOENT) && end:
			return p, nil
		case err != nil:
			return p, err
		case info.Mode.IsSymlink() && (!end || follow):
			if links++; links > MaxSymlinks {
				return p, ELOOP
			}
			target, err := p.mount.layer.readlink(p.path)
			if err != nil {
				return p, err
			}
			more, err := components(target)
			switch {
			case err != nil:
				return p, err
			case target == "":
				return p, ENOENT
			case target[0] == '/':
				clean = clean[:0]
			default:
				clean = clean[:len(clean)-1]
			}
			if len(more)+len(names) > MaxPath {
				return p, ENAMETOOLONG
			}
			names = append(more, names...)
		case !end && !info.Mode.IsDir():
			return p, ENOTDIR
		}
	}
	return t.at(strings.Join(clean, "/")), nil
}

// settle turns what a layer says into what a guest may see.
func settle(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLink): // another process replaced a directory by a link
		return EAGAIN
	}
	return ErrnoOf(err)
}
