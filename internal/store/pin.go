package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// Complete yields the runs that ended, or were imported, since a time and whose logs
// are complete, in no order. Of a filed run it yields only the id.
func (s *Store) Complete(since time.Time) iter.Seq2[spool.RunID, error] {
	return func(yield func(spool.RunID, error) bool) {
		if err := s.complete(since, yield); err != nil {
			yield("", fmt.Errorf("list complete runs: %w", err))
		}
	}
}

func (s *Store) complete(since time.Time, yield func(spool.RunID, error) bool) error {
	n, err := s.scanUnfiled()
	if err != nil {
		return err
	}
	if snapshot, err := s.openIndex(); err == nil {
		defer func() { _ = snapshot.Close() }() // it is only read
		var q index.Query
		if !since.IsZero() {
			q.Since = since.UnixNano()
		}
		for e := range snapshot.Select(q) {
			id := spool.RunID(e.ID)
			if n.runs[id] == nil && !n.hidden[id] && id.Check() == nil && !yield(id, nil) {
				return nil
			}
		}
	} else if n, err = s.scanAll(); err != nil {
		return err
	}
	for id, segs := range n.runs {
		if r, ok := summarizeFinal(id, segs); ok && !r.ages().Before(since) && !yield(id, nil) {
			return nil
		}
	}
	return nil
}

// Pinned is a complete run whose files have second names, so that they stay when the
// run is deleted.
type Pinned struct {
	Info     spool.Info // with its present name
	Segments []PinnedFile
	Blobs    []PinnedFile
	Bytes    int64 // of all files
}

// PinnedFile is a file of a pinned run.
type PinnedFile struct {
	Path   string
	Size   int64
	First  spool.Seq    // of a segment
	Last   spool.Seq    // of a segment: the seq of its last event
	Digest spool.Digest // of a blob
}

// Pin gives the files of a complete run second names in a directory, which must be in
// the file system of the state directory, and empty. The error is [fs.ErrNotExist] if
// there is no such run and [ErrIncomplete] if it has not ended.
func (s *Store) Pin(id spool.RunID, dir string) (Pinned, error) {
	segs, err := s.segments(id)
	if err != nil {
		return Pinned{}, fmt.Errorf("pin run: %w", err)
	}
	r := summarize(id, segs)
	if r.err != nil {
		return Pinned{}, fmt.Errorf("pin run %s: %w", id, r.err)
	}
	if !r.sealed || r.info.State != spool.StateClosed {
		return Pinned{}, fmt.Errorf("pin run %s: %w", id, ErrIncomplete)
	}
	s.renamed(&r.info)
	p := Pinned{Info: r.info}
	for i, seg := range segs {
		last := r.info.Last
		if i+1 < len(segs) {
			last = segs[i+1].first - 1
		}
		f := PinnedFile{First: seg.first, Last: last, Path: newSegment(dir, id, seg.first).path}
		if f.Size, err = pinFile(seg.path, f.Path); err != nil {
			return Pinned{}, fmt.Errorf("pin run %s: %w", id, err)
		}
		p.Segments = append(p.Segments, f)
		p.Bytes += f.Size
	}
	seen := make(map[spool.Digest]bool)
	err = s.digests(id, r, func(d spool.Digest) { seen[d] = true })
	for d := range seen {
		path, pathErr := s.blobPath(d)
		if pathErr != nil {
			continue
		}
		f := PinnedFile{Digest: d, Path: filepath.Join(dir, string(d[len(digestPrefix):]))}
		size, linkErr := pinFile(path, f.Path)
		if errors.Is(linkErr, fs.ErrNotExist) {
			continue // a digest that is no blob, or a blob that is gone
		}
		f.Size = size
		err = errors.Join(err, linkErr)
		p.Blobs = append(p.Blobs, f)
		p.Bytes += size
	}
	if err != nil {
		return Pinned{}, fmt.Errorf("pin run %s: %w", id, err)
	}
	return p, nil
}

// pinFile links a file, filed or not, and returns its size.
func pinFile(from, to string) (int64, error) {
	err := os.Link(from, to)
	if errors.Is(err, fs.ErrNotExist) && filepath.Ext(from) == segmentExt {
		err = os.Link(filedPath(from), to)
	}
	if err != nil {
		return 0, err
	}
	fi, err := os.Lstat(to)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Sums are the checksums of the file of a segment, in hex: of the file, and of what it
// holds, which differs once the segment is compressed.
type Sums struct {
	Size      int64
	SHA256    string
	RawSize   int64
	RawSHA256 string
}

// SumSegment reads a file of a segment. It calls rest often, which may wait.
func SumSegment(ctx context.Context, path string, rest func()) (Sums, error) {
	f, err := openSegment(path)
	if err != nil {
		return Sums{}, err
	}
	defer f.Close()
	raw, fi, err := f.sizes()
	if err != nil {
		return Sums{}, err
	}
	sums := Sums{Size: fi.Size(), RawSize: raw}
	if sums.SHA256, err = sumOf(ctx, f.file, sums.Size, rest); err != nil {
		return Sums{}, err
	}
	if f.blocks == nil {
		sums.RawSHA256 = sums.SHA256
		return sums, nil
	}
	sums.RawSHA256, err = sumOf(ctx, f, raw, rest)
	return sums, err
}

// sumOf returns the SHA-256 of so many bytes, in hex.
func sumOf(ctx context.Context, r io.ReaderAt, size int64, rest func()) (string, error) {
	sum, buf := sha256.New(), make([]byte, min(size, maxChunk))
	for off := int64(0); off < size; {
		n, err := r.ReadAt(buf[:min(size-off, maxChunk)], off)
		if n == 0 && err != nil {
			return "", err
		}
		sum.Write(buf[:n])
		off += int64(n)
		if rest != nil {
			rest()
		}
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Place makes the state directory of one complete run. Fill writes the segments, each to
// the path that it asks for; then the log must be a complete one of the run. The name is
// the present one of the run.
func Place(dir string, id spool.RunID, name string, fill func(path func(first spool.Seq) string) error) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	if err = fill(func(first spool.Seq) string { return newSegment(s.runsDir(), id, first).path }); err == nil {
		err = s.checkComplete(id, name)
	}
	return errors.Join(err, s.Close())
}

func (s *Store) checkComplete(id spool.RunID, name string) error {
	segs, err := s.segments(id)
	if err != nil {
		return err
	}
	r := summarize(id, segs)
	switch {
	case r.err != nil:
		return r.err
	case !r.sealed:
		return fmt.Errorf("run %s: %w", id, ErrIncomplete)
	case r.info.Name != name && len(name) <= MaxName:
		return os.WriteFile(s.namePath(id), []byte(name), 0o600)
	}
	return nil
}
