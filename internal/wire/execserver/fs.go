package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

const (
	maxReadFile = 512 << 20 // limit of fs/readFile in bytes
	// maxAnswerFile is the largest file that fits into one message as base64.
	maxAnswerFile       = (rpc.MaxMessage - 1<<10) / 4 * 3
	maxDirectoryEntries = 50_000 // limit of fs/readDirectory in names
)

// files serves the fs/* methods of one connection. It owns the connection's
// file handles and its watch.
type files struct {
	notify func(method string, params any)
	allow  func(path string) error // whether a path may be used; nil allows every path
	denied func(err error)         // is told of every refusal; may be nil
	large  largeAnswer

	mu        sync.Mutex
	closed    bool
	handles   map[string]*fileHandle
	watch     *missingWatch // nil if there is none
	lastWatch uint64        // highest watch id seen, valid if watched
	watched   bool
}

// newFiles returns the file state of a connection. A goroutine of its own calls
// notify for each notification to the client.
func newFiles(notify func(method string, params any), large largeAnswer) *files {
	return &files{notify: notify, large: large, handles: make(map[string]*fileHandle)}
}

// close closes handles and watches and waits for their goroutines. The caller
// must first unblock a notify that waits for the connection.
func (f *files) close() {
	f.mu.Lock()
	f.closed = true
	handles, watch := f.handles, f.watch
	f.handles, f.watch = nil, nil
	f.mu.Unlock()
	for _, h := range handles {
		h.close()
	}
	if watch != nil {
		watch.close()
	}
}

// noResult is an empty result.
type noResult struct{}

// handle serves the fs/* methods and reports whether the method is one of them.
func (f *files) handle(ctx context.Context, method string, params json.RawMessage) (result any, ok bool, err error) {
	var serve func(context.Context, json.RawMessage) (any, error)
	switch method {
	case "fs/readFile":
		serve = f.readFile
	case "fs/writeFile":
		serve = f.writeFile
	case "fs/createDirectory":
		serve = f.createDirectory
	case "fs/getMetadata":
		serve = f.getMetadata
	case "fs/canonicalize":
		serve = f.canonicalize
	case "fs/readDirectory":
		serve = f.readDirectory
	case "fs/walk":
		serve = f.walk
	case "fs/remove":
		serve = f.remove
	case "fs/copy":
		serve = f.copy
	case "fs/open":
		serve = f.open
	case "fs/readBlock":
		serve = f.readBlock
	case "fs/writeBlock":
		serve = f.writeBlock
	case "fs/close":
		serve = f.closeHandle
	case "fs/watchMissing":
		serve = f.watchMissing
	default:
		return nil, false, nil
	}
	result, err = serve(ctx, params)
	if err != nil {
		return nil, true, osError(err)
	}
	return result, true, nil
}

// pathParams are the members that most fs/* methods share.
type pathParams struct {
	Path           string          `json:"path"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        json.RawMessage `json:"sandbox"`
}

func (p *pathParams) common() *pathParams { return p }

// decodePath decodes params, which embed [pathParams], for a method that writes
// or only reads. It returns the path and the file system for the request.
func (f *files) decodePath(params json.RawMessage, p interface{ common() *pathParams }, writes bool, required ...string) (tree, string, error) {
	if err := decode(params, p, required...); err != nil {
		return nil, "", err
	}
	return f.resolve(p.common(), writes)
}

// resolve returns the path of a request and the file system for it.
func (f *files) resolve(p *pathParams, writes bool) (tree, string, error) {
	t, err := treeFor(p.Sandbox, writes)
	if err != nil {
		return nil, "", err
	}
	path, err := fileuri.Parse(p.Path)
	if err != nil {
		return nil, "", err
	}
	return t, path, f.check(path)
}

func (p *pathParams) follow() bool { return isTrue(p.FollowSymlinks) }

// links is what happens to symbolic links in the path.
func (p *pathParams) links() links {
	if p.follow() {
		return followLinks
	}
	return refuseLinks
}

// isTrue reads an optional member whose default is true.
func isTrue(b *bool) bool { return b == nil || *b }

func notAFile(path string) error {
	return rpc.Errorf(rpc.CodeInvalidRequest, "path `%s` is not a file", path)
}

func isSyntaxError(err error) bool {
	var syntax *fileuri.SyntaxError
	return errors.As(err, &syntax)
}

func (f *files) readFile(ctx context.Context, params json.RawMessage) (any, error) {
	var p pathParams
	t, path, err := f.decodePath(params, &p, false, "path")
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK: opening a named pipe must not wait for a writer.
	file, err := t.open(path, os.O_RDONLY|syscall.O_NONBLOCK, 0, p.links())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() && p.follow():
		return nil, notAFile(path)
	case !info.Mode().IsRegular():
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "path is not a regular file")
	}
	if info.Size() > maxAnswerFile && info.Size() <= maxReadFile {
		return nil, rpc.Errorf(rpc.CodeInternal, "file of %d bytes does not fit into one message: read it with fs/open and fs/readBlock", info.Size())
	}
	return f.large(ctx, min(info.Size(), maxAnswerFile), func() (any, error) {
		data, err := readAtMost(ctx, file, info.Size(), maxReadFile)
		if err != nil {
			return nil, err
		}
		return struct {
			Data []byte `json:"dataBase64"`
		}{data}, nil
	})
}

// readAtMost reads to the end of a file, but at most limit bytes. The size is a
// hint: files of /proc report 0.
func readAtMost(ctx context.Context, r io.Reader, size, limit int64) ([]byte, error) {
	tooLarge := rpc.Errorf(rpc.CodeInvalidRequest, "file is too large to read: limit is %d bytes", limit)
	if size > limit {
		return nil, tooLarge
	}
	buf := make([]byte, 0, size+512)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		const step = 8 << 20 // bytes between checks of the context
		n, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+step)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, tooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}

func (f *files) writeFile(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		pathParams
		Data string `json:"dataBase64"`
	}
	t, path, err := f.decodePath(params, &p, true, "path", "dataBase64")
	if err != nil {
		return nil, err
	}
	data, err := decodeBase64(p.Data)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "fs/writeFile requires valid base64 dataBase64: %s", err)
	}
	file, err := t.open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o666, p.links())
	if err != nil {
		return nil, err
	}
	defer cancelWith(ctx, file)()
	_, err = file.Write(data)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	return noResult{}, nil
}

// cancelWith interrupts a blocked read or write of the file, as on a pipe, when
// ctx ends. The caller calls stop when done.
func cancelWith(ctx context.Context, file *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		_ = file.SetDeadline(time.Unix(1, 0)) // regular files have no deadline and never block
	})
}

func (f *files) createDirectory(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		pathParams
		Recursive *bool `json:"recursive"`
	}
	t, path, err := f.decodePath(params, &p, true, "path")
	if err != nil {
		return nil, err
	}
	if err := t.mkdir(path, isTrue(p.Recursive), p.links()); err != nil {
		return nil, err
	}
	return noResult{}, nil
}

// mkdirAll is [os.MkdirAll] with the errno of the mkdir that failed: EEXIST for
// a file in place of the directory, ENOTDIR for a file among its parents.
func mkdirAll(t tree, path string) error {
	err := t.mkdir(path, false, followLinks)
	if parent := filepath.Dir(path); errors.Is(err, syscall.ENOENT) && parent != path {
		if err := mkdirAll(t, parent); err != nil {
			return err
		}
		err = t.mkdir(path, false, followLinks)
	}
	if err == nil {
		return nil
	}
	if info, serr := t.info(path, followLinks); serr == nil && info.IsDir() {
		return nil
	}
	return err
}

// metadata is the result of fs/getMetadata.
type metadata struct {
	IsDirectory  bool   `json:"isDirectory"`
	IsFile       bool   `json:"isFile"`
	IsSymlink    bool   `json:"isSymlink"`
	Size         uint64 `json:"size"`
	CreatedAtMS  int64  `json:"createdAtMs"`
	ModifiedAtMS int64  `json:"modifiedAtMs"`
}

func (f *files) getMetadata(_ context.Context, params json.RawMessage) (any, error) {
	var p pathParams
	t, path, err := f.decodePath(params, &p, false, "path")
	if err != nil {
		return nil, err
	}
	m, err := t.stat(path, p.links())
	if !p.follow() {
		if err == nil && m.IsSymlink {
			err = errSymlink
		}
		return m, err
	}
	if err != nil {
		return nil, err
	}
	link, err := t.stat(path, keepLast)
	if err != nil {
		return nil, err
	}
	m.IsSymlink = link.IsSymlink
	return m, nil
}

func (f *files) canonicalize(_ context.Context, params json.RawMessage) (any, error) {
	var p pathParams
	t, path, err := f.decodePath(params, &p, false, "path")
	if err != nil {
		return nil, err
	}
	if path, err = t.realPath(path); err != nil {
		return nil, err
	}
	return struct {
		Path string `json:"path"`
	}{fileuri.Format(path)}, nil
}

// directoryEntry is one name in the result of fs/readDirectory.
type directoryEntry struct {
	FileName       string `json:"fileName"`
	FileNameBase64 []byte `json:"fileNameBase64,omitempty"` // only if the name is not UTF-8
	IsDirectory    bool   `json:"isDirectory"`
	IsFile         bool   `json:"isFile"`
}

func (f *files) readDirectory(ctx context.Context, params json.RawMessage) (any, error) {
	var p pathParams
	t, path, err := f.decodePath(params, &p, false, "path")
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(t, path, followLinks)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	result := struct {
		Entries []directoryEntry `json:"entries"`
	}{make([]directoryEntry, 0, 64)}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			m, err := t.statEntry(dir, path, name)
			if err != nil {
				continue // a broken link, removed meanwhile, or hidden
			}
			e := directoryEntry{FileName: name, IsDirectory: m.IsDirectory, IsFile: m.IsFile}
			if !utf8.ValidString(name) {
				e.FileNameBase64 = []byte(name)
			}
			result.Entries = append(result.Entries, e)
		}
		switch {
		case len(result.Entries) > maxDirectoryEntries:
			return nil, rpc.Errorf(rpc.CodeInternal, "fs/readDirectory returned more than %d entries, which is the limit", maxDirectoryEntries)
		case err == io.EOF:
			return result, nil
		case err != nil:
			return nil, err
		}
	}
}

// openDirectory opens a directory to read its names.
func openDirectory(t tree, path string, l links) (*os.File, error) {
	return t.open(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0, l)
}

func (f *files) remove(_ context.Context, params json.RawMessage) (any, error) {
	var p struct {
		pathParams
		Recursive *bool `json:"recursive"`
		Force     *bool `json:"force"`
	}
	t, path, err := f.decodePath(params, &p, true, "path")
	if err != nil {
		return nil, err
	}
	switch recursive := isTrue(p.Recursive); {
	case !p.follow() && recursive:
		err = rpc.Errorf(rpc.CodeInternal, "recursive no-follow removal is unsupported")
	case path == "/" && recursive:
		err = rpc.Errorf(rpc.CodeInvalidRequest, "fs/remove does not remove the root directory")
	default:
		err = t.remove(path, recursive, p.links())
	}
	if errors.Is(err, syscall.ENOENT) && isTrue(p.Force) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return noResult{}, nil
}
