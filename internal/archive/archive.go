// Package archive keeps the logs of finished runs where they outlive their machine: in
// a directory or in an object store.
//
// A run is one group of objects, named by its id, so that it is found without an index:
//
//	runs/<2 hex digits>/<id>/<first seq>-<16 hex digits>.seg
//	runs/<2 hex digits>/<id>/<64 hex digits>.blob
//	runs/<2 hex digits>/<id>/manifest.json
//
// Segments and blobs are the files of the state directory, byte for byte. The manifest
// comes last and is only ever created: a run is in the archive if its manifest is. What
// has no manifest is an upload that is under way or was given up. Blobs are not shared
// between runs, so that removing a run needs no look at others.
//
// A [Shipper] brings the runs of a state directory here, a [Cache] fetches them for
// readers, and [Archive] lists, checks and removes them.
package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

// Objects is a place for objects: files in a directory, or an object store. All methods
// are safe for concurrent use. Keys are paths of lowercase letters, digits, '-', '.'
// and '/'.
type Objects interface {
	// Create stores an object, all of it or nothing, and only if its bytes
	// arrive as they were sent. The error is [fs.ErrExist] if the key is taken.
	Create(ctx context.Context, key string, c Content) error
	// Open reads an object. The error is [fs.ErrNotExist] if there is none.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Stat describes an object. The error is [fs.ErrNotExist] if there is none.
	Stat(ctx context.Context, key string) (Object, error)
	// List yields the objects whose keys begin with a prefix.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Remove deletes an object. It is no error if there is none.
	Remove(ctx context.Context, key string) error
	// Close releases what the place holds.
	Close() error
	// String names the place for people, without secrets.
	String() string
}

// Content is what an object will hold.
type Content struct {
	Body   *io.SectionReader
	SHA256 string // in hex
}

// Object describes an object.
type Object struct {
	Key      string
	Size     int64
	Modified time.Time
	// SHA256 is the checksum, in hex, that the place has computed from what it
	// stores. It is empty if only reading the object tells.
	SHA256 string
}

var (
	// ErrDamaged means that an object is not what was stored.
	ErrDamaged = errors.New("the archive is damaged")
	// ErrConflict means that the archive has another run with the same id.
	ErrConflict = errors.New("the archive has another run with this id")
)

const (
	runsPrefix   = "runs/"
	manifestName = "manifest.json"
	segmentExt   = ".seg"
	blobExt      = ".blob"
)

// runPrefix returns the beginning of the keys of a run.
func runPrefix(id spool.RunID) string {
	sum := sha256.Sum256([]byte(id))
	return runsPrefix + hex.EncodeToString(sum[:1]) + "/" + string(id) + "/"
}

func manifestKey(id spool.RunID) string { return runPrefix(id) + manifestName }

// segmentKey names a segment by its content, too: a segment is compressed some time
// after its run ended, and what was uploaded of it before that is another object.
func segmentKey(id spool.RunID, s *Segment) string {
	return fmt.Sprintf("%s%020d-%.16s%s", runPrefix(id), s.First, s.SHA256, segmentExt)
}

func blobKey(id spool.RunID, d spool.Digest) string {
	return runPrefix(id) + strings.TrimPrefix(string(d), "sha256:") + blobExt
}

// parseKey splits the key of an object of a run.
func parseKey(key string) (id spool.RunID, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, runsPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return "", "", false
	}
	id = spool.RunID(parts[1])
	return id, parts[2], id.Check() == nil && runPrefix(id) == path.Dir(key)+"/"
}

// Archive is the runs in a place.
type Archive struct{ objects Objects }

// New returns the archive in a place.
func New(o Objects) *Archive { return &Archive{o} }

// Manifest reads the manifest of a run. The error is [spool.ErrNotFound] if the archive
// does not have the run.
func (a *Archive) Manifest(ctx context.Context, id spool.RunID) (*Manifest, error) {
	m, err := a.manifest(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run %s: %w in the archive %s", id, spool.ErrNotFound, a.objects)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest of run %s: %w", id, err)
	}
	return m, nil
}

func (a *Archive) manifest(ctx context.Context, id spool.RunID) (*Manifest, error) {
	r, err := a.objects.Open(ctx, manifestKey(id))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return decodeManifest(b, id)
}

// Has reports whether the archive has a run.
func (a *Archive) Has(ctx context.Context, id spool.RunID) (bool, error) {
	_, err := a.objects.Stat(ctx, manifestKey(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Verify reads every object of a run and compares it with the manifest. The error is
// [ErrDamaged] if one is missing or differs.
func (a *Archive) Verify(ctx context.Context, id spool.RunID) (*Manifest, error) {
	m, err := a.Manifest(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, f := range m.files() {
		if err := a.copyObject(ctx, io.Discard, f); err != nil {
			return m, fmt.Errorf("run %s: %w", id, err)
		}
	}
	return m, nil
}

// copyObject copies an object and checks it.
func (a *Archive) copyObject(ctx context.Context, w io.Writer, f file) error {
	r, err := a.objects.Open(ctx, f.key)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is gone", ErrDamaged, f.key)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(r, f.size+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != f.size || got != f.sha256 {
		return fmt.Errorf("%w: %s has %d bytes with the checksum %.12s, want %d with %.12s", ErrDamaged, f.key, n, got, f.size, f.sha256)
	}
	return nil
}

// Remove deletes a run, and what uploads of it left. The manifest goes first: a reader
// finds all of a run or none.
func (a *Archive) Remove(ctx context.Context, id spool.RunID) error {
	if err := id.Check(); err != nil {
		return err
	}
	if err := a.objects.Remove(ctx, manifestKey(id)); err != nil {
		return fmt.Errorf("remove run %s from the archive: %w", id, err)
	}
	for o, err := range a.objects.List(ctx, runPrefix(id)) {
		if err == nil {
			err = a.objects.Remove(ctx, o.Key)
		}
		if err != nil {
			return fmt.Errorf("remove run %s from the archive: %w", id, err)
		}
	}
	return nil
}
