package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/store/index"
)

// FileBatch is how many runs are filed at a time: they share one write to the
// index, for which the disk is waited for.
const FileBatch = 1024

// fileShare is the part of a large number of runs that one [Store.File] files.
// Every one reads all their names.
const fileShare = 16

func (s *Store) indexDir() string  { return filepath.Join(s.dir, "index") }
func (s *Store) namesLock() string { return filepath.Join(s.indexDir(), "names") }

// openIndex opens the index. Without one it returns an empty snapshot if no run is
// filed. After an error the directories tell which runs there are.
func (s *Store) openIndex() (*index.Snapshot, error) {
	snapshot, err := index.Open(s.indexDir())
	if errors.Is(err, index.ErrNone) {
		shards, err := s.shards()
		if err == nil && len(shards) == 0 {
			return &index.Snapshot{}, nil
		}
		return nil, errors.Join(index.ErrNone, err)
	}
	return snapshot, err
}

// Terms of the index.
const (
	termName    = "name"
	termEngine  = "engine"
	termOutcome = "outcome"
	termLabel   = "label"
	// termHasLabel is a label with any value.
	termHasLabel = "has"
	// termBlob is a blob to which the run refers, by its digest.
	termBlob = "blob"
	// termManyBlobs is a run whose blobs only its log tells.
	termManyBlobs = "blobs"
)

// maxBlobTerms is how many blobs of a run the index has. With more it only has that
// there are many.
const maxBlobTerms = 64

// queryOf returns the query whose answer has all filed runs that a filter selects.
func queryOf(f *spool.Filter) index.Query {
	q := index.Query{Prefix: string(f.Prefix), Glob: f.NameGlob, Oldest: f.Oldest}
	if f.Name != "" {
		q.Terms = append(q.Terms, index.NewTerm(termName, f.Name))
	}
	if f.Engine != "" {
		q.Terms = append(q.Terms, index.NewTerm(termEngine, f.Engine))
	}
	if f.Outcome != "" {
		q.Terms = append(q.Terms, index.NewTerm(termOutcome, string(f.Outcome)))
	}
	if !f.Before.IsZero() {
		q.Before = f.Before.UnixNano()
	}
	for name, value := range f.Labels {
		if value != "" { // a run without the label matches otherwise
			q.Terms = append(q.Terms, labelTerm(name, value))
		}
	}
	for _, name := range f.HasLabels {
		q.Terms = append(q.Terms, labelTerm(name, ""))
	}
	if !f.Since.IsZero() {
		q.Since = f.Since.UnixNano()
	}
	// A cursor of another form is left to the filter.
	if created, id, ok := strings.Cut(f.After, "."); ok {
		if ns, err := strconv.ParseInt(created, 36, 64); err == nil {
			q.After = index.Key{Created: ns, ID: id}
		}
	}
	return q
}

// blobTerms returns the terms of the blobs to which a complete run refers.
func (s *Store) blobTerms(r *summary) []index.Term {
	many := []index.Term{index.NewTerm(termManyBlobs)}
	if r.err != nil { // what follows the damage is not known
		return many
	}
	seen := make(map[spool.Digest]bool)
	if s.digests(r.info.ID, *r, func(d spool.Digest) { seen[d] = true }) != nil {
		return many
	}
	return digestTerms(nil, seen)
}

// digestTerms appends the terms of the blobs of a run.
func digestTerms(terms []index.Term, seen map[spool.Digest]bool) []index.Term {
	if len(seen) > maxBlobTerms {
		return append(terms, index.NewTerm(termManyBlobs))
	}
	for d := range seen {
		terms = append(terms, index.NewTerm(termBlob, string(d)))
	}
	return terms
}

// entry returns what the index has of a complete run, with its present name. The
// caller holds the lock of names.
func (s *Store) entry(r *summary, blobs []index.Term) index.Entry {
	s.renamed(&r.info)
	_, err := statSegment(s.namePath(r.info.ID))
	return entryOf(r, blobs, err == nil)
}

// entryOf returns what the index has of a complete run. The info has its present
// name.
func entryOf(r *summary, blobs []index.Term, renamed bool) index.Entry {
	info := &r.info
	e := index.Entry{
		ID: string(info.ID), Created: info.Created.UnixNano(), Ended: r.ages().UnixNano(), Bytes: r.stored(), Raw: r.raw(),
		Name: info.Name, Terms: append(blobs, index.NewTerm(termEngine, info.Engine)),
	}
	if info.Name != "" {
		e.Terms = append(e.Terms, index.NewTerm(termName, info.Name))
	}
	if info.Outcome != nil {
		e.Terms = append(e.Terms, index.NewTerm(termOutcome, string(info.Outcome.Kind)))
	}
	e.Terms = append(e.Terms, labelTerms(info.Labels)...)
	if renamed {
		e.Flags |= index.Renamed
	}
	if len(r.segs) > 1 || r.segs[0].first != 1 {
		e.Flags |= index.Segmented
	}
	if info.Workspace != nil {
		e.Flags |= index.Workspace
	}
	return e
}

// labelTerms returns the terms of labels: of each with its value, and with any.
func labelTerms(labels map[string]string) (terms []index.Term) {
	for name, value := range labels {
		terms = append(terms, labelTerm(name, ""))
		if value != "" {
			terms = append(terms, labelTerm(name, value))
		}
	}
	return terms
}

// labelTerm returns the term of a label with a value; empty for any.
func labelTerm(name, value string) index.Term {
	if value == "" {
		return index.NewTerm(termHasLabel, name)
	}
	return index.NewTerm(termLabel, name, value)
}

// File files runs that were completed before a time: it adds them to the index and
// then moves their files. It files up to FileBatch runs, or more if there are very
// many, and returns how many and whether complete runs are left. An index that is
// missing or damaged is built first.
//
// A crash at any point loses nothing: a run that is not filed is in the directory
// runs, and one that is filed is in the index.
func (s *Store) File(ctx context.Context, before time.Time) (filed int, more bool, err error) {
	n, err := s.scanUnfiled()
	if err != nil {
		return 0, false, fmt.Errorf("file runs: %w", err)
	}
	var due []summary
	most := max(FileBatch, len(n.runs)/fileShare)
	for id, segs := range n.runs {
		if len(due) == most {
			more = true
			break
		}
		if more && !segs[len(segs)-1].wroteBefore(before) {
			continue // without reading it
		}
		r, ok := summarizeFinal(id, segs)
		switch {
		case ok && r.wrote.Before(before):
			due = append(due, r)
		case ok:
			more = true
		}
	}
	if len(due) == 0 && s.verified.Load() {
		return 0, more, nil
	}
	if filed, err = s.fileRuns(ctx, due); err != nil {
		return filed, true, fmt.Errorf("file runs: %w", err)
	}
	return filed, more, nil
}

// fileRuns adds runs to the index and moves their files.
func (s *Store) fileRuns(ctx context.Context, due []summary) (filed int, err error) {
	w, err := index.Lock(ctx, s.indexDir())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := s.checkIndex(ctx, w); err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(due, FileBatch) {
		n, err := s.fileBatch(ctx, w, batch)
		filed += n
		if err != nil {
			return filed, err
		}
	}
	return filed, nil
}

func (s *Store) fileBatch(ctx context.Context, w *index.Writer, batch []summary) (filed int, err error) {
	blobs := make([][]index.Term, len(batch))
	for i := range batch {
		blobs[i] = s.blobTerms(&batch[i])
	}
	// A name that is given meanwhile must not be filed without being in the index.
	lock, err := flock.Open(ctx, s.namesLock())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	entries := make([]index.Entry, len(batch))
	for i := range batch {
		entries[i] = s.entry(&batch[i], blobs[i])
	}
	if err := w.Write(entries, nil); err != nil {
		return 0, err
	}
	if err := failpoint.Inject("store.indexed"); err != nil {
		return 0, err
	}
	var errs []error
	var gone []index.Key
	for i := range batch {
		err := s.moveRun(&batch[i])
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			gone = append(gone, entries[i].Key())
		case err != nil:
			errs = append(errs, fmt.Errorf("run %s: %w", batch[i].info.ID, err))
		default:
			filed++
		}
	}
	return filed, errors.Join(append(errs, w.Write(nil, gone), w.Compact())...)
}

// moveRun moves the files of a run to its subdirectory, the last segment last.
func (s *Store) moveRun(r *summary) error {
	if err := os.MkdirAll(s.shardDir(r.info.ID), 0o700); err != nil {
		return err
	}
	for _, seg := range r.segs {
		if filepath.Dir(seg.path) != filepath.Clean(s.runsDir()) {
			continue
		}
		if err := failpoint.Inject("store.move"); err != nil {
			return err
		}
		to := filedPath(seg.path)
		err := renameNew(seg.path, to)
		if errors.Is(err, fs.ErrExist) && sameFile(seg.path, to) {
			err = os.Remove(seg.path) // an earlier move was interrupted
		}
		if err != nil && (!errors.Is(err, fs.ErrNotExist) || !exists(to)) {
			return err
		}
	}
	if err := failpoint.Inject("store.moved"); err != nil {
		return err
	}
	name := s.namePath(r.info.ID)
	if err := os.Rename(name, filedPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func sameFile(a, b string) bool {
	x, errX := os.Lstat(a)
	y, errY := os.Lstat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// checkIndex builds an index that is missing or damaged. The first time it
// verifies checksums.
func (s *Store) checkIndex(ctx context.Context, w *index.Writer) error {
	if w.Usable() && !s.verified.Load() {
		if err := w.Verify(); err != nil && !errors.Is(err, index.ErrDamaged) {
			return err
		}
	}
	if !w.Usable() {
		if err := w.Build(func(add func([]index.Entry) error) error { return s.eachFiled(ctx, add) }); err != nil {
			return err
		}
	}
	s.verified.Store(true)
	return nil
}

// summarizeFinal describes a complete run. It reports false for others, without
// reading more than both ends of a file.
func summarizeFinal(id spool.RunID, segs []*segment) (summary, bool) {
	r := summary{info: spool.Info{ID: id}, segs: segs}
	f, err := openSegment(segs[len(segs)-1].path)
	if err != nil {
		return r, false
	}
	defer f.Close()
	size, fi, err := f.sizes()
	var t tail
	if err != nil || !t.readFinal(f, size, id) || t.info.State != spool.StateClosed {
		return r, false
	}
	r.info, r.sealed, r.wrote, r.size, r.disk = t.info, true, fi.ModTime(), size, fi.Size()
	return r, true
}

// unindexTime is how long a removal waits for a process that writes the index.
const unindexTime = time.Second

// indexed returns which runs the index has of some that were removed: those that were filed
// meanwhile.
func (s *Store) indexed(removed []index.Key) []index.Key {
	if len(removed) == 0 {
		return nil
	}
	snapshot, err := s.openIndex()
	if err != nil { // one that is built has none of them
		return nil
	}
	defer func() { _ = snapshot.Close() }() // it is only read
	return slices.DeleteFunc(removed, func(k index.Key) bool {
		_, ok := snapshot.Find(k.ID)
		return !ok
	})
}

// unindex removes runs from the index that do not exist any more. An entry that
// stays does no harm: a run without a log is not listed.
func (s *Store) unindex(gone []index.Key) {
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unindexTime)
	defer cancel()
	w, err := index.Lock(ctx, s.indexDir())
	if err != nil {
		return
	}
	for batch := range slices.Chunk(gone, FileBatch) {
		if w.Write(nil, batch) != nil || w.Compact() != nil {
			break
		}
	}
	_ = w.Close()
}
