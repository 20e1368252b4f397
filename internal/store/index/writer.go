package index

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/flock"
)

const (
	// logRecords is how many records a log has before they become a segment.
	// Every reader reads the log.
	logRecords = 4096
	// segmentRows is how many entries a segment has at most. It bounds the
	// memory of a merge.
	segmentRows = 128 << 10
)

// Writer changes an index. One process at a time has one.
type Writer struct {
	dir      string
	lock     *os.File
	manifest manifest
	log      *os.File // open for appending; nil if the index must be built
	size     int64    // of the log
	records  int
}

// Lock opens an index for writing, once no other process does, and creates the
// directory if necessary. If [Writer.Usable] then reports false the index must be
// built.
func Lock(ctx context.Context, dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	lock, err := flock.Open(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock index: %w", err)
	}
	w := &Writer{dir: dir, lock: lock}
	if err := w.open(); err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("open index: %w", err), w.Close())
	}
	return w, nil
}

// open opens the log. It sets w.log only if the index can be trusted.
func (w *Writer) open() error {
	s, err := open(w.dir)
	if err != nil { // no other process writes: a torn end of the log is damage, too
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if w.manifest, err = readManifest(w.dir); err != nil {
		return err
	}
	f, err := os.OpenFile(w.path(w.manifest.Log), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.log, w.size, w.records = f, fi.Size(), s.log.records
	return nil
}

func (w *Writer) path(name string) string { return filepath.Join(w.dir, name) }

// Usable reports whether the index exists and is whole.
func (w *Writer) Usable() bool { return w.log != nil }

// Verify compares the checksums of all segments. After an error the index must be
// built.
func (w *Writer) Verify() error {
	s, err := open(w.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.verify())
	}
	err = errors.Join(append(errs, s.Close())...)
	if errors.Is(err, ErrDamaged) && w.log != nil {
		err = errors.Join(err, w.log.Close())
		w.log = nil
	}
	return err
}

// Close gives up the lock.
func (w *Writer) Close() error {
	var err error
	if w.log != nil {
		err = w.log.Close()
		w.log = nil
	}
	return errors.Join(err, flock.Unlock(w.lock), w.lock.Close())
}

// Write removes and adds entries, in this order. Once it has returned, neither
// the death of the process nor that of the machine loses them. An entry replaces
// the earlier one of its id.
func (w *Writer) Write(add []Entry, remove []Key) error {
	if w.log == nil {
		return ErrDamaged
	}
	var b []byte
	for _, k := range remove {
		b = appendRemove(b, k)
	}
	for i := range add {
		b = appendAdd(b, &add[i])
	}
	if len(b) == 0 {
		return nil
	}
	err := failpoint.Inject("index.write")
	if err == nil {
		_, err = w.log.Write(b)
	}
	if err == nil {
		err = w.log.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write index: %w", err), w.log.Truncate(w.size))
	}
	w.size += int64(len(b))
	w.records += len(add) + len(remove)
	return nil
}

// Compact makes a segment of the log if that is long.
func (w *Writer) Compact() error {
	if w.log == nil || w.records < logRecords {
		return nil
	}
	return w.compact()
}

func (w *Writer) compact() error {
	s, err := open(w.dir)
	if err != nil {
		return fmt.Errorf("compact index: %w", err)
	}
	next, err := w.merge(s)
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("compact index: %w", err)
	}
	if err := w.replace(next); err != nil {
		return fmt.Errorf("compact index: %w", err)
	}
	return nil
}

// merge writes the files of the index after the log and small segments became one
// segment.
func (w *Writer) merge(s *Snapshot) (manifest, error) {
	next := manifest{Version: manifestVersion, Next: w.manifest.Next}
	entries := make([]Entry, 0, len(s.newest))
	for _, e := range s.newest {
		entries = append(entries, *e)
	}
	changed := make(map[*segment]bool)
	for p := range s.masked() {
		changed[p.seg] = true
		p.seg.kill(p.row)
	}
	var kept []*segment
	total := len(entries)
	for _, seg := range slices.Backward(s.segments) {
		alive := seg.rows - seg.ndead
		// Segments that are merged at least double: so an entry is seldom
		// written again.
		small := alive <= total || alive < seg.rows/2
		if alive > 0 && (!small || total+alive > segmentRows) {
			kept = append(kept, seg)
			continue
		}
		if alive > 0 {
			entries = seg.entries(entries)
			total += alive
		}
	}
	slices.Reverse(kept)
	for _, seg := range kept {
		file := seg.file
		if changed[seg] {
			file.Dead = next.newName(deadExt)
			if err := w.create(file.Dead, le.AppendUint32(slices.Clone(seg.dead), crc32.Checksum(seg.dead, castagnoli))); err != nil {
				return next, err
			}
		}
		next.Segments = append(next.Segments, file)
	}
	if err := w.addSegment(&next, entries); err != nil {
		return next, err
	}
	return next, w.addLog(&next)
}

func (s *segment) kill(row int) {
	if s.dead == nil {
		s.dead = make([]byte, (s.rows+7)/8)
	}
	s.dead[row/8] |= 1 << (row % 8)
	s.ndead++
}

func (w *Writer) addSegment(m *manifest, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return w.create(m.addSegment(), encodeSegment(entries))
}

// addSegment adds a segment and returns the name of its file.
func (m *manifest) addSegment() string {
	name := m.newName(segmentExt)
	m.Segments = append(m.Segments, segmentFile{Name: name})
	return name
}

func (w *Writer) addLog(m *manifest) error {
	m.Log = m.newName(logExt)
	return w.create(m.Log, nil)
}

// create writes a new file and makes it durable.
func (w *Writer) create(name string, b []byte) error {
	if err := failpoint.Inject("index.create"); err != nil {
		return err
	}
	f, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replace makes the files of a manifest those that count, and deletes the others.
func (w *Writer) replace(next manifest) error {
	b, err := next.encode()
	if err != nil {
		return err
	}
	if err := w.create(manifestName+tempExt, b); err != nil {
		return err
	}
	if err := failpoint.Inject("index.replace"); err != nil {
		return err
	}
	if err := os.Rename(w.path(manifestName+tempExt), w.path(manifestName)); err != nil {
		return err
	}
	if err := w.syncDir(); err != nil {
		return err
	}
	if err := failpoint.Inject("index.replaced"); err != nil {
		return err
	}
	if w.log != nil {
		if err := w.log.Close(); err != nil {
			return err
		}
		w.log = nil
	}
	w.deleteOthers(&next)
	return w.open()
}

func (w *Writer) syncDir() error {
	d, err := os.Open(w.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// deleteOthers deletes the files that do not count. One that stays is deleted the
// next time.
func (w *Writer) deleteOthers(m *manifest) {
	counts := map[string]bool{manifestName: true, lockName: true}
	for _, name := range m.files() {
		counts[name] = true
	}
	entries, _ := os.ReadDir(w.dir)
	for _, e := range entries {
		if !counts[e.Name()] {
			_ = os.Remove(w.path(e.Name()))
		}
	}
}
