package execserver

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Limits of fs/walk.
const (
	maxWalkDepth       = 64
	maxWalkDirectories = 10_000
	maxWalkEntries     = 50_000
	maxWalkResponse    = 4 << 20 // approximate bytes of the answer
)

// walkOptions limit a walk.
type walkOptions struct {
	MaxDepth                uint64 `json:"maxDepth"`
	MaxDirectories          uint64 `json:"maxDirectories"`
	MaxEntries              uint64 `json:"maxEntries"`
	FollowDirectorySymlinks bool   `json:"followDirectorySymlinks"`
	PruneHiddenDirectories  bool   `json:"pruneHiddenDirectories"`
}

// walkResult is the result of fs/walk.
type walkResult struct {
	Entries   []walkEntry `json:"entries"`
	Errors    []walkError `json:"errors"`
	Truncated bool        `json:"truncated"`
}

type walkEntry struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // file or directory
}

type walkError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (f *files) walk(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		pathParams
		Options json.RawMessage `json:"options"`
	}
	if err := decode(params, &p, "path", "options"); err != nil {
		return nil, err
	}
	var o walkOptions
	if err := decode(p.Options, &o, "maxDepth", "maxDirectories", "maxEntries", "followDirectorySymlinks"); err != nil {
		return nil, err
	}
	t, path, err := f.resolve(&p.pathParams, false)
	if err != nil {
		return nil, err
	}
	switch {
	case o.MaxDirectories == 0 || o.MaxEntries == 0:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "filesystem walk limits must be greater than zero")
	case o.MaxDepth > maxWalkDepth || o.MaxDirectories > maxWalkDirectories || o.MaxEntries > maxWalkEntries:
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "filesystem walk limits exceed maximums: depth=%d, directories=%d, entries=%d",
			maxWalkDepth, maxWalkDirectories, maxWalkEntries)
	}
	result, err := walkTree(ctx, t, path, o)
	if err != nil {
		return nil, err
	}
	return f.allowed(result), nil
}

// walker lists a tree breadth first.
type walker struct {
	tree     tree
	options  walkOptions
	result   walkResult
	queue    []walkDirectory
	queued   uint64 // directories ever queued
	seen     map[fileKey]bool
	examined uint64
	size     int
	full     bool // a limit was reached
}

// fileKey identifies a file.
type fileKey struct{ device, inode uint64 }

func keyOf(info os.FileInfo) fileKey {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileKey{}
	}
	return fileKey{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // not on every platform
}

// walkDirectory is a directory to be listed.
type walkDirectory struct {
	path  string
	depth uint64
	link  bool // reached through a symbolic link
}

func walkTree(ctx context.Context, t tree, root string, o walkOptions) (walkResult, error) {
	w := walker{tree: t, options: o, seen: make(map[fileKey]bool)}
	w.result.Entries, w.result.Errors = []walkEntry{}, []walkError{}
	info, err := t.info(root, keepLast)
	if err != nil {
		return walkResult{}, err
	}
	link := info.Mode()&os.ModeSymlink != 0
	if link {
		if !o.FollowDirectorySymlinks {
			return w.result, nil
		}
		if info, err = t.info(root, followLinks); err != nil {
			return walkResult{}, err
		}
	}
	if !info.IsDir() {
		return w.result, nil
	}
	w.enter(walkDirectory{path: root, link: link}, info)
	for len(w.queue) > 0 && !w.full {
		if err := ctx.Err(); err != nil {
			return walkResult{}, err
		}
		d := w.queue[0]
		w.queue = w.queue[1:]
		if err := w.list(d); err != nil {
			w.fail(d.path, err)
		}
	}
	return w.result, nil
}

// enter queues a directory unless it was queued before.
func (w *walker) enter(d walkDirectory, info os.FileInfo) {
	key := keyOf(info)
	if w.seen[key] {
		return
	}
	if w.queued == w.options.MaxDirectories {
		w.result.Truncated = true
		return
	}
	w.seen[key] = true
	w.queued++
	w.queue = append(w.queue, d)
}

// list adds the entries of one directory, sorted by bytes.
func (w *walker) list(d walkDirectory) error {
	names, err := w.sortedNames(d, w.options.MaxEntries-w.examined+1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if w.examined == w.options.MaxEntries {
			w.truncate()
		}
		if w.full {
			return nil
		}
		w.examined++
		w.examine(d, name)
	}
	return nil
}

func (w *walker) examine(d walkDirectory, name string) {
	if !utf8.ValidString(name) {
		// Codex clients expect such a name, with replacement characters, as an
		// error and not as an entry. fs/readDirectory has the name's bytes.
		w.fail(filepath.Join(d.path, string([]rune(name))), syscall.ENOENT)
		return
	}
	path := filepath.Join(d.path, name)
	if !w.tree.shows(path) {
		return
	}
	info, err := w.tree.info(path, keepLast)
	if err != nil {
		w.fail(path, err)
		return
	}
	link := info.Mode()&os.ModeSymlink != 0
	if link {
		if !w.options.FollowDirectorySymlinks {
			return
		}
		if info, err = w.tree.info(path, followLinks); err != nil || !info.IsDir() {
			return
		}
	}
	switch {
	case info.Mode().IsRegular():
		w.add(path, "file")
	case info.IsDir():
		w.add(path, "directory")
		hidden := w.options.PruneHiddenDirectories && strings.HasPrefix(name, ".")
		if !w.full && !hidden && d.depth < w.options.MaxDepth {
			w.enter(walkDirectory{path, d.depth + 1, link}, info)
		}
	}
}

func (w *walker) add(path, kind string) {
	uri := fileuri.Format(path)
	if w.fits(len(uri) + len(`{"path":"","kind":"directory"},`)) {
		w.result.Entries = append(w.result.Entries, walkEntry{uri, kind})
	}
}

func (w *walker) fail(path string, err error) {
	uri, text := fileuri.Format(path), osMessage(err)
	if w.fits(len(uri) + len(text) + len(`{"path":"","message":""},`)) {
		w.result.Errors = append(w.result.Errors, walkError{uri, text})
	}
}

// fits deducts n bytes from the budget of the answer.
func (w *walker) fits(n int) bool {
	if w.size+n > maxWalkResponse {
		w.truncate()
		return false
	}
	w.size += n
	return true
}

func (w *walker) truncate() {
	w.result.Truncated, w.full = true, true
}

// sortedNames returns the first limit names of a directory. It holds few more
// than that in memory, however large the directory is.
func (w *walker) sortedNames(d walkDirectory, limit uint64) ([]string, error) {
	l := keepLast
	if d.link {
		l = followLinks
	}
	dir, err := openDirectory(w.tree, d.path, l)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var names []string
	cut := func() {
		slices.Sort(names)
		if uint64(len(names)) > limit {
			clear(names[limit:])
			names = names[:limit]
		}
	}
	for {
		more, err := dir.Readdirnames(1024)
		names = append(names, more...)
		if uint64(len(names)) > 2*limit+4096 {
			cut()
		}
		if err == io.EOF {
			cut()
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
