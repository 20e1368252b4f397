// Package dir keeps the objects of an archive as files in a directory, which may be on a
// disk of another machine. Only their user can read the files.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/failpoint"
)

// Dir is a directory of objects.
type Dir struct{ path string }

var _ archive.Objects = (*Dir)(nil)

// tempPrefix begins the name of a file that is being written.
const tempPrefix = ".incoming-"

// tempFor is how long such a file is kept that nobody goes on with.
const tempFor = 24 * time.Hour

// Open opens a directory, which must exist: a disk that is not mounted is no empty
// archive.
func Open(path string) (*Dir, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("open the archive: %s is no directory", path)
	}
	return &Dir{path}, nil
}

// String implements [archive.Objects].
func (d *Dir) String() string { return "dir:" + d.path }

// Close implements [archive.Objects].
func (d *Dir) Close() error { return nil }

func (d *Dir) file(key string) string { return filepath.Join(d.path, filepath.FromSlash(key)) }

// Create implements [archive.Objects]. The file gets its name once it is on the disk.
func (d *Dir) Create(ctx context.Context, key string, c archive.Content) (err error) {
	if _, err := os.Stat(d.path); err != nil { // MkdirAll must not make the archive itself
		return err
	}
	path := d.file(key)
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), tempPrefix+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.Remove(temp); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	_, err = io.Copy(f, reader{ctx, c.Body})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := failpoint.Inject("archive.dir.written"); err != nil {
		return err
	}
	if err := os.Link(temp, path); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(path), d.path)
}

// reader ends with a context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// syncDirs makes the names in a directory and those above it durable, up to a root.
func syncDirs(dir, root string) error {
	for {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		if dir == root || len(dir) <= len(root) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// Open implements [archive.Objects].
func (d *Dir) Open(_ context.Context, key string) (io.ReadCloser, error) { return os.Open(d.file(key)) }

// Stat implements [archive.Objects].
func (d *Dir) Stat(_ context.Context, key string) (archive.Object, error) {
	fi, err := os.Lstat(d.file(key))
	if err != nil {
		return archive.Object{}, err
	}
	return archive.Object{Key: key, Size: fi.Size(), Modified: fi.ModTime()}, nil
}

// List implements [archive.Objects]. It removes what died processes left.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[archive.Object, error] {
	return func(yield func(archive.Object, error) bool) {
		if _, err := os.Stat(d.path); err != nil {
			yield(archive.Object{}, err)
			return
		}
		root := d.file(prefix)
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // nothing yet, or removed meanwhile
				return nil
			}
			if err != nil || e.IsDir() {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fi, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if strings.HasPrefix(e.Name(), tempPrefix) {
				if time.Since(fi.ModTime()) > tempFor {
					_ = os.Remove(path) // or the next list does
				}
				return nil
			}
			key, err := filepath.Rel(d.path, path)
			if err != nil {
				return err
			}
			if !yield(archive.Object{Key: filepath.ToSlash(key), Size: fi.Size(), Modified: fi.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(archive.Object{}, err)
		}
	}
}

// Remove implements [archive.Objects]. A directory that is empty then goes, too.
func (d *Dir) Remove(_ context.Context, key string) error {
	path := d.file(key)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(path)) // fails while it has other files
	return nil
}
