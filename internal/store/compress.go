package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/store/index"
)

const (
	// compressMin is the size from which a segment is compressed: a short one would
	// save a few blocks of the disk at most.
	compressMin = 64 << 10
	// compressGain is the smallest part of a segment that must be saved, in
	// eighths.
	compressGain = 1
)

// ErrNoCompression is the error of [Store.Compress] where files cannot be exchanged.
var ErrNoCompression = errors.New("the file system cannot exchange files")

// Compress compresses the segments of a complete run that are worth it, and returns
// how many bytes that saved. Readers notice nothing: one that has a segment open
// reads it to its end, and the log is the same byte for byte, which Compress checks
// before it replaces a segment. It calls rest often, which may wait, so that
// compressing takes no more of the processor than it should.
//
// The error is [ErrIncomplete] if the run is not complete.
func (s *Store) Compress(ctx context.Context, id spool.RunID, rest func()) (saved int64, err error) {
	segs, err := s.segments(id)
	if err != nil {
		return 0, fmt.Errorf("compress run: %w", err)
	}
	r := summarize(id, segs)
	if r.err != nil {
		return 0, fmt.Errorf("compress run %s: %w", id, r.err)
	}
	if !r.sealed {
		return 0, fmt.Errorf("compress run %s: %w", id, ErrIncomplete)
	}
	b := newSieveBuilder(segs, func() error {
		if rest != nil {
			rest()
		}
		return ctx.Err()
	})
	for i, seg := range segs {
		n, err := s.compressSegment(seg, func() ([]byte, error) { return b.notes(i) }, b.rest)
		saved += n
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return saved, nil
		}
		if err != nil {
			return saved, fmt.Errorf("compress run %s: %w", id, err)
		}
	}
	return saved, nil
}

// compressSegment compresses one segment, if that is worth it and was not done before.
func (s *Store) compressSegment(seg *segment, notes func() ([]byte, error), rest func() error) (saved int64, err error) {
	old, err := openSegment(seg.path)
	if err != nil {
		return 0, err
	}
	defer old.Close()
	size, fi, err := old.sizes()
	if err != nil || old.blocks != nil || size < compressMin {
		return 0, err
	}
	// A sweep looks for such files only here.
	temp := filepath.Join(s.runsDir(), strings.TrimSuffix(filepath.Base(seg.path), segmentExt)+"."+s.nonce+newExt)
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(temp)) }()
	compressed, err := s.writeCompressed(f, old, size, notes, rest)
	if err != nil || compressed > size/8*(8-compressGain) {
		return 0, err
	}
	// A list without the runs of long ago goes by the time of the last write.
	if err := os.Chtimes(temp, time.Time{}, fi.ModTime()); err != nil {
		return 0, err
	}
	if err := s.fsync(f); err != nil {
		return 0, err
	}
	if err := failpoint.Inject("store.compress"); err != nil {
		return 0, err
	}
	// Unlike a rename, an exchange does not bring back a run that was removed.
	if err := exchange(temp, seg.path); err != nil {
		return 0, err
	}
	if err := failpoint.Inject("store.compressed"); err != nil {
		return 0, err
	}
	if s.policy == SyncNone {
		return size - compressed, nil
	}
	return size - compressed, errors.Join(s.syncDir(filepath.Dir(seg.path)), s.syncDir(s.runsDir()))
}

// writeCompressed writes a segment's compressed form to f, and compares what it reads
// from there with the segment.
func (s *Store) writeCompressed(f *os.File, old io.ReaderAt, size int64, notes func() ([]byte, error), rest func() error) (int64, error) {
	w := bufio.NewWriterSize(f, blockfile.BlockSize)
	if err := blockfile.Write(w, old, size, blockfile.Options{Rest: rest, Notes: notes}); err != nil {
		return 0, err
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	r, err := blockfile.Open(f, fi)
	if err != nil {
		return 0, err
	}
	want, got := make([]byte, blockfile.BlockSize), make([]byte, blockfile.BlockSize)
	for off := int64(0); off < size; off += blockfile.BlockSize {
		n := min(blockfile.BlockSize, size-off)
		if _, err := old.ReadAt(want[:n], off); err != nil {
			return 0, err
		}
		if _, err := r.ReadAt(got[:n], off); err != nil {
			return 0, err
		}
		if !bytes.Equal(want[:n], got[:n]) {
			return 0, fmt.Errorf("%w: it differs at %d", blockfile.ErrDamaged, off)
		}
		if err := rest(); err != nil {
			return 0, err
		}
	}
	return fi.Size(), nil
}

// CompressEnded compresses the runs that ended between two times, and returns how many
// bytes that saved. After an error it continues with the next run.
func (s *Store) CompressEnded(ctx context.Context, after, before time.Time, rest func()) (saved int64, err error) {
	runs, err := s.uncompressed(after, before)
	errs := []error{err}
	for _, r := range runs {
		if ctx.Err() != nil {
			break
		}
		n, err := s.Compress(ctx, r.id, rest)
		saved += n
		switch {
		case err == nil && r.filed:
			errs = append(errs, s.noteCompressed(ctx, r.id))
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrIncomplete):
		case errors.Is(err, ErrNoCompression):
			return saved, err
		default:
			errs = append(errs, err)
		}
	}
	return saved, errors.Join(errs...)
}

// compressible is a run that may be worth compressing.
type compressible struct {
	id    spool.RunID
	filed bool
}

// uncompressed returns the runs that ended between two times and may be worth
// compressing.
func (s *Store) uncompressed(after, before time.Time) (runs []compressible, err error) {
	n, err := s.scanUnfiled()
	if err != nil {
		return nil, err
	}
	if snapshot, err := s.openIndex(); err == nil {
		q := index.Query{}
		if !after.IsZero() {
			q.Since = after.UnixNano()
		}
		for e := range snapshot.Select(q) {
			id := spool.RunID(e.ID)
			if e.Bytes >= compressMin && e.Flags&index.Compressed == 0 && e.Ended < before.UnixNano() && n.runs[id] == nil && id.Check() == nil {
				runs = append(runs, compressible{id, true})
			}
		}
		if err := snapshot.Close(); err != nil {
			return runs, err
		}
	} else if n, err = s.scanAll(); err != nil {
		return nil, err
	}
	for id, segs := range n.runs {
		if len(segs) == 1 && segs[0].smaller(compressMin) {
			continue // without reading it: most runs are small
		}
		r, ok := summarizeFinal(id, segs)
		if ok && r.info.Bytes >= compressMin && !r.wrote.Before(after) && r.info.Ended.Before(before) {
			runs = append(runs, compressible{id, false})
		}
	}
	return runs, nil
}

// noteCompressed gives the index the new size of a filed run, and that it need not be
// compressed again.
func (s *Store) noteCompressed(ctx context.Context, id spool.RunID) (err error) {
	segs, err := s.scanRun(id)
	if err != nil || len(segs) == 0 {
		return err // removed meanwhile
	}
	r, ok := summarizeFinal(id, segs)
	if !ok {
		return nil
	}
	blobs := s.blobTerms(&r) // before the lock: this reads the log
	w, err := index.Lock(ctx, s.indexDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	lock, err := flock.Open(ctx, s.namesLock())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if !w.Usable() || !exists(segs[0].path) {
		return nil // the index will be built, or the run was removed meanwhile
	}
	e := s.entry(&r, blobs)
	e.Flags |= index.Compressed
	return w.Write([]index.Entry{e}, nil)
}
