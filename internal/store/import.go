package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/runfile"
)

// LabelImported is the label of a run that was imported, with the time. Such a
// run ages from then on.
const LabelImported = "spool.imported"

// Import adds the run of a file in the format of package runfile, and returns its
// description. The run gets another id from newID if its own is taken. Until the
// whole file was checked, there is no run.
func (s *Store) Import(r io.Reader, newID func() spool.RunID) (info spool.Info, err error) {
	dir, err := os.MkdirTemp(s.dir, importPrefix)
	if err != nil {
		return info, fmt.Errorf("import run: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	staging, err := Open(dir, Options{SegmentBytes: s.segmentBytes, Sync: s.policy, Now: s.now})
	if err != nil {
		return info, fmt.Errorf("import run: %w", err)
	}
	sink := &importSink{from: staging, to: s, newID: newID}
	err = runfile.Read(r, sink)
	if err == nil {
		err = sink.seal()
	}
	if sink.journal != nil {
		err = errors.Join(err, sink.journal.Close())
	}
	if err = errors.Join(err, staging.Close()); err != nil {
		return info, err
	}
	if err := s.adopt(staging, sink.info.ID); err != nil {
		return info, fmt.Errorf("import run %s: %w", sink.info.ID, err)
	}
	return sink.journal.Info(), nil
}

// importPrefix begins the name of a directory with a run that is being imported.
const importPrefix = "import-"

// importSink writes what an archive holds to a store of its own.
type importSink struct {
	from, to *Store
	newID    func() spool.RunID
	info     spool.Info
	journal  *Journal
}

// Begin implements [runfile.Sink].
func (k *importSink) Begin(_ spool.Spec, info spool.Info) (err error) {
	for k.to.taken(info.ID) {
		info.ID = k.newID()
	}
	labels := map[string]string{LabelImported: k.to.now().UTC().Format(time.RFC3339)}
	for name, value := range info.Labels {
		// Such labels say to whom a run belongs on the machine where it ran.
		if !strings.HasPrefix(name, "spool.") && !strings.HasPrefix(name, "exec-server.") {
			labels[name] = value
		}
	}
	info.Labels, info.Owner, info.Pid = labels, "", 0
	k.info = info
	k.journal, err = k.from.Create(info)
	return err
}

// taken reports whether there is a run with that id.
func (s *Store) taken(id spool.RunID) bool {
	for _, dir := range []string{s.runsDir(), s.shardDir(id)} {
		if found, err := filepath.Glob(filepath.Join(dir, string(id)+".*")); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// Event implements [runfile.Sink].
func (k *importSink) Event(e *spool.Event) error {
	last, _ := k.journal.Last()
	if e.Seq == last+1 {
		return k.journal.Append(e)
	}
	var gap spool.Truncation
	if err := json.Unmarshal(e.Data, &gap); err != nil || gap.From != last+1 || gap.To != e.Seq {
		return fmt.Errorf("%w: event %d comes after event %d", runfile.ErrDamaged, e.Seq, last)
	}
	return k.journal.skip(e.Seq)
}

// skip leaves out events up to a seq: the next one begins a new segment.
func (j *Journal) skip(to spool.Seq) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := j.writable(); err != nil {
		return err
	}
	j.tail.next = to + 1
	return j.begin()
}

// Blob implements [runfile.Sink].
func (k *importSink) Blob(_ spool.Digest, content io.Reader) error {
	_, _, err := k.from.putBlob(content)
	return err
}

func (k *importSink) seal() error { return k.journal.Seal(k.info) }

// adopt moves a run and its blobs from another store in the same file system. The
// blobs come first: a run that exists has its blobs.
func (s *Store) adopt(from *Store, id spool.RunID) error {
	err := filepath.WalkDir(from.blobsDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isDigest(d.Name()) {
			return err
		}
		return s.adoptBlob(path, spool.Digest(digestPrefix+d.Name()))
	})
	if err != nil {
		return err
	}
	segs, err := from.segments(id)
	if err != nil {
		return err
	}
	if len(segs) > 1 {
		if err := s.hide(id); err != nil {
			return err
		}
	}
	for i, seg := range segs {
		if err := linkNew(seg.path, newSegment(s.runsDir(), id, seg.first).path); err != nil {
			for _, moved := range segs[:i] {
				err = errors.Join(err, removeFile(newSegment(s.runsDir(), id, moved.first).path))
			}
			return errors.Join(err, removeFile(s.hiddenPath(id)))
		}
	}
	return removeFile(s.hiddenPath(id))
}

// adoptBlob moves the file of a blob here, unless the blob exists.
func (s *Store) adoptBlob(file string, d spool.Digest) error {
	path, err := s.blobPath(d)
	if err != nil {
		return err
	}
	now := s.now()
	s.blobMu.Lock()
	defer s.blobMu.Unlock()
	if err := os.Chtimes(path, now, now); !errors.Is(err, fs.ErrNotExist) {
		return err // the blob exists already
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.Rename(file, path)
}

// sweepImports deletes what interrupted imports left.
func (s *Store) sweepImports(before time.Time) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), importPrefix) {
			continue
		}
		// An import writes to the directory below all the time.
		runs := filepath.Join(s.dir, e.Name(), "runs")
		if fi, err := os.Stat(runs); err == nil && fi.ModTime().After(before) {
			continue
		}
		if newest(runs).After(before) {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
	}
	return errors.Join(errs...)
}

// newest returns when a file in a directory was last written to.
func newest(dir string) (t time.Time) {
	entries, _ := os.ReadDir(dir) // without entries it is the zero time
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.ModTime().After(t) {
			t = fi.ModTime()
		}
	}
	return t
}
