package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/store"
)

const (
	// freshFor is how old an object of an earlier attempt may be that an upload
	// builds on. An older one is stored again: it might be about to be removed
	// as abandoned.
	freshFor = 12 * time.Hour
	// attemptFor is how long one attempt to upload a run may take.
	attemptFor = 12 * time.Hour
)

// upload brings a pinned run to the archive: segments and blobs, then it looks whether all
// of them are there as they should be, then the manifest. All of it may be repeated.
func (s *Shipper) upload(ctx context.Context, p *pendingRun) (*Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptFor)
	defer cancel()
	m, err := s.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	if done, err := s.has(ctx, m); done || err != nil {
		return m, err
	}
	paths := p.paths()
	for i, f := range m.files() {
		if err := s.put(ctx, f, paths[i]); err != nil {
			return nil, fmt.Errorf("upload %s: %w", f.key, err)
		}
		if err := failpoint.Inject("archive.object"); err != nil {
			return nil, err
		}
	}
	for _, f := range m.files() {
		if err := s.check(ctx, f); err != nil {
			return nil, fmt.Errorf("check the upload of %s: %w", f.key, err)
		}
	}
	if err := failpoint.Inject("archive.checked"); err != nil {
		return nil, err
	}
	b, err := m.encode()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	err = s.objects.Create(ctx, manifestKey(m.Run), Content{
		Body: io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), SHA256: hex.EncodeToString(sum[:]),
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("upload the manifest: %w", err)
	}
	// Whether or not it was this attempt that stored it, it must be there and say
	// the same.
	if done, err := s.has(ctx, m); err != nil || !done {
		return nil, errors.Join(err, errors.New("the manifest is not there after it was stored"))
	}
	return m, failpoint.Inject("archive.committed")
}

// has reports whether the archive has a run with the same log. Another run with its id
// is [ErrConflict].
func (s *Shipper) has(ctx context.Context, m *Manifest) (bool, error) {
	there, err := New(s.objects).manifest(ctx, m.Run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case m.same(there):
		return true, nil
	case m.Info.Labels[store.LabelImported] != "": // the archive has what it was exported from
		return true, nil
	}
	return false, fmt.Errorf("%w: it came from %s at %s", ErrConflict, there.Node, there.Archived.UTC().Format(time.RFC3339))
}

// describe makes the manifest of a pinned run.
func (s *Shipper) describe(ctx context.Context, p *pendingRun) (*Manifest, error) {
	m := &Manifest{Run: p.Info.ID, Node: s.opts.Node, Epoch: s.opts.Epoch, Archived: time.Now().UTC().Round(0), Info: p.Info}
	for _, f := range p.Segments {
		sums, err := store.SumSegment(ctx, p.path(f), resting(ctx))
		if err != nil {
			return nil, err
		}
		m.Segments = append(m.Segments, Segment{
			First: f.First, Last: f.Last, Size: sums.Size, SHA256: sums.SHA256, RawSize: sums.RawSize, RawSHA256: sums.RawSHA256,
		})
	}
	for _, f := range p.Blobs {
		m.Blobs = append(m.Blobs, Blob{f.Digest, f.Size})
	}
	return m, m.check(m.Run)
}

// put stores one file, unless an earlier attempt did.
func (s *Shipper) put(ctx context.Context, f file, path string) error {
	o, err := s.objects.Stat(ctx, f.key)
	if err == nil {
		if time.Since(o.Modified) < freshFor && s.check(ctx, f) == nil {
			return nil
		}
		// There is no manifest yet, so nobody reads it.
		if err := s.objects.Remove(ctx, f.key); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	body := io.NewSectionReader(&pacedFile{ctx, &s.pace, file}, 0, f.size)
	err = s.objects.Create(ctx, f.key, Content{Body: body, SHA256: f.sha256})
	if errors.Is(err, fs.ErrExist) { // a repeated request, or the same run from elsewhere; it is checked
		return nil
	}
	if err == nil {
		s.uploaded(f.size)
	}
	return err
}

// check compares an object with what was sent: by the checksum of the place, or by
// reading it.
func (s *Shipper) check(ctx context.Context, f file) error {
	o, err := s.objects.Stat(ctx, f.key)
	if err != nil {
		return err
	}
	if o.SHA256 == "" {
		return New(s.objects).copyObject(ctx, restingWriter{resting(ctx)}, f)
	}
	if o.Size != f.size || o.SHA256 != f.sha256 {
		return fmt.Errorf("%w: it has %d bytes with the checksum %.12s, want %d with %.12s", ErrDamaged, o.Size, o.SHA256, f.size, f.sha256)
	}
	return nil
}

// restingWriter rests after each part that it drops.
type restingWriter struct{ rest func() }

func (w restingWriter) Write(p []byte) (int, error) {
	w.rest()
	return len(p), nil
}
