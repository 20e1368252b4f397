package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/store"
)

// DefaultCache is how many bytes of archived runs are kept in a state directory for
// their readers.
const DefaultCache = 1 << 30

// usedFor is how long a run stays in the cache after it was asked for, whatever its
// size: somebody reads it.
const usedFor = time.Hour

// Cache fetches runs from an archive for readers. Each is a small state directory of
// its own, so that it reads as any other run does. Several processes may share a cache.
type Cache struct {
	archive *Archive
	dir     string
	limit   int64

	mu       sync.Mutex
	fetching map[string]*sync.Mutex // by directory; only while somebody has it
	waiting  map[string]int
}

// NewCache returns the cache of a state directory; limit is its size in bytes.
func NewCache(o Objects, state string, limit int64) *Cache {
	return &Cache{
		archive: New(o), dir: filepath.Join(state, stateName, cacheName), limit: cmp.Or(limit, DefaultCache),
		fetching: make(map[string]*sync.Mutex), waiting: make(map[string]int),
	}
}

// Fetch returns a state directory that has the log of an archived run, all of it and as
// it was. The error is [spool.ErrNotFound] if the archive does not have the run, or does
// not answer, which the error says; and [ErrDamaged] if what it has is not what was stored.
func (c *Cache) Fetch(ctx context.Context, id spool.RunID) (string, error) {
	if id.Check() != nil {
		return "", fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound)
	}
	dir := filepath.Join(c.dir, string(id))
	defer c.lock(dir)()
	if _, err := c.manifest(dir, id); err == nil {
		return dir, touch(dir)
	}
	m, err := c.archive.Manifest(ctx, id)
	if err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, ErrDamaged) && ctx.Err() == nil {
		// Nothing says that there is such a run: a name may be meant.
		return "", fmt.Errorf("run %s: %w here, and the archive does not tell: %w", id, spool.ErrNotFound, err)
	}
	if err != nil {
		return "", err
	}
	if err := privatedir.Make(filepath.Dir(c.dir)); err != nil {
		return "", fmt.Errorf("fetch run %s: %w", id, err)
	}
	if err := privatedir.Make(c.dir); err != nil {
		return "", fmt.Errorf("fetch run %s: %w", id, err)
	}
	if err := c.fetch(ctx, m, dir); err != nil {
		return "", fmt.Errorf("fetch run %s from the archive: %w", id, err)
	}
	return dir, c.evict(time.Now())
}

// manifest returns that of a run in the cache.
func (c *Cache) manifest(dir string, id spool.RunID) (*Manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, err
	}
	return decodeManifest(b, id)
}

// fetch makes the directory of a run, all of it or nothing.
func (c *Cache) fetch(ctx context.Context, m *Manifest, dir string) (err error) {
	temp, err := os.MkdirTemp(c.dir, hiddenPrefix+"incoming-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	err = store.Place(temp, m.Run, m.Info.Name, func(path func(spool.Seq) string) error {
		for i := range m.Segments {
			s := &m.Segments[i]
			if err := c.download(ctx, file{segmentKey(m.Run, s), s.Size, s.SHA256}, path(s.First)); err != nil {
				return err
			}
			if err := failpoint.Inject("archive.fetched"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b, err := m.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(temp, manifestName), b, 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // what is there has no manifest
		return err
	}
	err = os.Rename(temp, dir)
	if _, there := c.manifest(dir, m.Run); err != nil && there == nil { // another process was faster
		return nil
	}
	return err
}

// download copies an object to a new file and checks it.
func (c *Cache) download(ctx context.Context, f file, path string) (err error) {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = c.archive.copyObject(ctx, w, f)
	return errors.Join(err, w.Close())
}

// FetchBlob returns a state directory that has a blob of an archived run. The error is
// [spool.ErrNotFound] if the run has no such blob.
func (c *Cache) FetchBlob(ctx context.Context, id spool.RunID, d spool.Digest) (string, error) {
	dir, err := c.Fetch(ctx, id)
	if err != nil {
		return "", err
	}
	defer c.lock(dir)()
	m, err := c.manifest(dir, id)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(m.Blobs, func(b Blob) bool { return b.Digest == d })
	if i < 0 {
		return "", fmt.Errorf("blob %s: %w", d, spool.ErrNotFound)
	}
	name := strings.TrimPrefix(string(d), "sha256:")
	path := filepath.Join(dir, "blobs", name[:2], name)
	if fi, err := os.Lstat(path); err == nil && fi.Size() == m.Blobs[i].Size {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(c.dir, hiddenPrefix+"incoming-")
	if err != nil {
		return "", err
	}
	err = c.download(ctx, m.Blobs[i].file(id), filepath.Join(temp, name))
	if err == nil {
		err = os.Rename(filepath.Join(temp, name), path)
	}
	if err = errors.Join(err, os.RemoveAll(temp)); err != nil {
		return "", fmt.Errorf("fetch blob %s from the archive: %w", d, err)
	}
	return dir, nil
}

// lock keeps other goroutines from fetching the same run; the function it returns
// unlocks.
func (c *Cache) lock(dir string) (unlock func()) {
	c.mu.Lock()
	l := c.fetching[dir]
	if l == nil {
		l = new(sync.Mutex)
		c.fetching[dir] = l
	}
	c.waiting[dir]++
	c.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting[dir]--; c.waiting[dir] == 0 {
			delete(c.waiting, dir)
			delete(c.fetching, dir)
		}
	}
}

// touch notes that a run is used now.
func touch(dir string) error {
	now := time.Now()
	return os.Chtimes(filepath.Join(dir, manifestName), now, now)
}

// cached is a run in the cache.
type cached struct {
	dir  string
	used time.Time
	size int64
}

// evict removes the runs that were used longest ago until the rest is within the limit,
// but none that was used lately, and what died processes left.
func (c *Cache) evict(now time.Time) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var runs []cached
	var total int64
	for _, e := range entries {
		dir := filepath.Join(c.dir, e.Name())
		if strings.HasPrefix(e.Name(), hiddenPrefix) {
			if fi, err := e.Info(); err == nil && now.Sub(fi.ModTime()) > attemptFor {
				_ = os.RemoveAll(dir) // or the next one does
			}
			continue
		}
		fi, err := os.Stat(filepath.Join(dir, manifestName))
		if err != nil {
			continue
		}
		r := cached{dir, fi.ModTime(), sizeOf(dir)}
		runs, total = append(runs, r), total+r.size
	}
	slices.SortFunc(runs, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, r := range runs {
		if total <= c.limit || now.Sub(r.used) < usedFor {
			break
		}
		// The manifest first: without it the rest is not used.
		if err := os.Remove(filepath.Join(r.dir, manifestName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(r.dir); err != nil {
			return err
		}
		total -= r.size
	}
	return nil
}

// sizeOf returns the size of the files below a directory.
func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // what is gone has no size
		if err == nil && !e.IsDir() {
			if fi, err := e.Info(); err == nil {
				n += fi.Size()
			}
		}
		return nil
	})
	return n
}
