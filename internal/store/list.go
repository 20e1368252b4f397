package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// List yields a description of every run, newest first, as [Store.Select] does.
func (s *Store) List() iter.Seq2[spool.Info, error] { return s.Select(spool.Filter{}) }

// Unfiled is [Store.List] without the runs that are filed, all of which are
// complete.
func (s *Store) Unfiled() iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		n, err := s.scanUnfiled()
		if err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		for _, r := range s.summaries(n, time.Time{}) {
			if !yield(r.info, r.err) {
				return
			}
		}
	}
}

// Select yields a description of the runs that a filter selects, in its order: the
// final one of complete runs, the newest one of the others. The limit of the
// filter does not count.
//
// For a run whose file is corrupt it yields an error and the ID of the run. For
// runs that are not filed it does so first, and only if f.After is empty.
func (s *Store) Select(f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := s.sel(&f, yield); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
		}
	}
}

func (s *Store) sel(f *spool.Filter, yield func(spool.Info, error) bool) error {
	// In this order: a run is in the index before it is filed.
	n, err := s.scanUnfiled()
	if err != nil {
		return err
	}
	var filed iter.Seq[index.Entry]
	if f.Live || f.Waiting || f.State != "" && f.State != spool.StateClosed {
		filed = func(func(index.Entry) bool) {} // those are complete
	} else if snapshot, err := s.openIndex(); err == nil {
		defer func() { _ = snapshot.Close() }() // it is only read
		q := queryOf(f)
		q.Whole = f.Brief
		filed = snapshot.Select(q)
	} else if n, err = s.scanAll(); err != nil {
		return err
	} else {
		filed = func(func(index.Entry) bool) {}
	}
	var unfiled []spool.Info
	for _, r := range s.summaries(n, f.Since) {
		switch {
		case r.err != nil && f.After == "" && !yield(spool.Info{ID: r.info.ID}, r.err):
			return nil
		case r.err == nil && f.Match(&r.info):
			unfiled = append(unfiled, r.info)
		}
	}
	slices.SortFunc(unfiled, func(a, b spool.Info) int { return f.Compare(&a, &b) })
	var short *briefs
	if f.Brief {
		short = new(briefs)
	}
	for r := range s.describeAll(filed, n, short) {
		id := r.info.ID
		switch {
		case errors.Is(r.err, fs.ErrNotExist): // removed
			continue
		case r.err != nil:
			if !yield(spool.Info{ID: id}, r.err) {
				return nil
			}
			continue
		case !f.Match(&r.info):
			continue
		}
		for len(unfiled) > 0 && f.Compare(&unfiled[0], &r.info) < 0 {
			if !yield(unfiled[0], nil) {
				return nil
			}
			unfiled = unfiled[1:]
		}
		if !yield(r.info, nil) {
			return nil
		}
	}
	for _, info := range unfiled {
		if !yield(info, nil) {
			return nil
		}
	}
	return nil
}

// Count calls unfiled with every run that is not filed, and returns the number of
// those that are, all of which are complete.
func (s *Store) Count(unfiled func(spool.Info)) (filed int, err error) {
	n, err := s.scanUnfiled()
	if err != nil {
		return 0, fmt.Errorf("count runs: %w", err)
	}
	if snapshot, err := s.openIndex(); err == nil {
		filed = snapshot.Len()
		for id := range n.runs {
			if _, ok := snapshot.Find(string(id)); ok {
				filed--
			}
		}
		if err := snapshot.Close(); err != nil {
			return 0, fmt.Errorf("count runs: %w", err)
		}
	} else if n, err = s.scanAll(); err != nil {
		return 0, fmt.Errorf("count runs: %w", err)
	}
	for _, r := range s.summaries(n, time.Time{}) {
		if r.err == nil {
			unfiled(r.info)
		}
	}
	return filed, nil
}

// Countable reports whether [Store.Count] tells how many runs a filter selects: it
// asks for nothing but their state.
func Countable(f *spool.Filter) bool {
	return !f.Waiting && f.Prefix == "" && f.Name == "" && f.NameGlob == "" && f.Engine == "" && f.Outcome == "" && len(f.Labels) == 0 && len(f.HasLabels) == 0 && f.Since.IsZero() && f.Before.IsZero()
}

// describeBatch is how many descriptions are read at once, at most.
const describeBatch = 256

// describeAll describes the runs of the index that are not among others, in their
// order, with short by what that knows. It reads more and more at a time, on all
// processors: a short list reads little more than it needs, and a long one is read soon.
func (s *Store) describeAll(filed iter.Seq[index.Entry], others *names, short *briefs) iter.Seq[summary] {
	return func(yield func(summary) bool) {
		batch := make([]index.Entry, 0, 1)
		flush := func() bool {
			found := make([]summary, len(batch))
			if short == nil {
				s.describeEach(batch, others, found)
			} else {
				s.describeShort(batch, others, found, short)
			}
			for i := range found {
				found[i].info.ID = spool.RunID(batch[i].ID)
				if !yield(found[i]) {
					return false
				}
			}
			batch = make([]index.Entry, 0, min(2*cap(batch), describeBatch))
			return true
		}
		for e := range filed {
			if id := spool.RunID(e.ID); others.runs[id] != nil || others.hidden[id] {
				continue
			}
			if batch = append(batch, e); len(batch) == cap(batch) && !flush() {
				return
			}
		}
		flush()
	}
}

// describeEach reads the descriptions of entries, on all processors.
func (s *Store) describeEach(batch []index.Entry, others *names, found []summary) {
	const share = 16 // for less it is not worth waking a processor
	var wg sync.WaitGroup
	part := max(share, (len(batch)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < len(batch); from += part {
		describe := func() {
			for i := from; i < min(from+part, len(batch)); i++ {
				found[i] = s.describe(&batch[i], others)
			}
		}
		if from+part < len(batch) {
			wg.Go(describe)
		} else {
			describe()
		}
	}
	wg.Wait()
}

// describeShort describes entries by themselves, and reads the descriptions of those that
// do not tell enough.
func (s *Store) describeShort(batch []index.Entry, others *names, found []summary, short *briefs) {
	const oneByOne = 8 // reads after which the others of a batch are read at once
	var rest []int
	reads := 0
	for i := range batch {
		info, ok := short.describe(&batch[i])
		switch {
		case ok:
			found[i].info = info
		case reads < oneByOne:
			reads++
			found[i] = s.describe(&batch[i], others)
			short.learn(&batch[i], &found[i])
		default:
			rest = append(rest, i)
		}
	}
	entries, read := make([]index.Entry, len(rest)), make([]summary, len(rest))
	for k, i := range rest {
		entries[k] = batch[i]
	}
	s.describeEach(entries, others, read)
	for k, i := range rest {
		found[i] = read[k]
		short.learn(&batch[i], &read[k])
	}
}

// describe reads the description of a run that the index has.
func (s *Store) describe(e *index.Entry, n *names) summary {
	id := spool.RunID(e.ID)
	if id.Check() != nil {
		return summary{err: fs.ErrNotExist}
	}
	segs := []*segment{newSegment(s.shardDir(id), id, 1)}
	if e.Flags&index.Segmented != 0 {
		var err error
		if segs, err = s.segments(id); err != nil {
			return summary{err: err}
		}
	}
	r := summarize(id, segs)
	if e.Flags&index.Renamed != 0 || n.renamed[id] {
		r.addName(s)
	}
	return r
}

// summary describes a run by its last segment.
type summary struct {
	info   spool.Info
	sealed bool
	wrote  time.Time // when the last segment was last written to
	size   int64     // of the last segment, before compression
	disk   int64     // of the last segment's file
	segs   []*segment
	moved  bool // the last segment was filed since its name was read
	err    error
}

// coarsest is by how much the time of a file may be before the moment at which it was
// written: the clock of most file systems is that of the last tick, of some that of the
// last two seconds.
const coarsest = 2 * time.Second

// summaries returns the runs of these names that may have been written to since a
// time, newest first.
func (s *Store) summaries(n *names, since time.Time) []summary {
	all := make([]summary, 0, len(n.runs))
	for id, segs := range n.runs {
		if !since.IsZero() {
			if fi, err := statSegment(segs[len(segs)-1].path); err == nil && fi.ModTime().Before(since.Add(-coarsest)) {
				continue
			}
		}
		r := summarize(id, segs)
		if n.renamed[id] || r.moved { // it may have been filed with its name
			r.addName(s)
		}
		if errors.Is(r.err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b summary) int {
		return cmp.Or(b.info.Created.Compare(a.info.Created), cmp.Compare(a.info.ID, b.info.ID))
	})
	return all
}

func summarize(id spool.RunID, segs []*segment) summary {
	r := summary{info: spool.Info{ID: id}, segs: segs}
	for i := len(segs) - 1; i >= 0; i-- {
		t, at, err := readTail(id, segs[i])
		if i == len(segs)-1 {
			r.wrote, r.moved, r.size, r.disk = at.wrote, at.moved, at.size, at.disk
		}
		if err != nil {
			r.err = err
		}
		if t.off == 0 && err == nil && i > 0 {
			continue // its head is being written
		}
		if t.off == 0 {
			t.info = spool.Info{ID: id, Created: at.wrote, State: spool.StateRunning}
		}
		r.info, r.sealed = t.info, t.sealed
		r.info.Last, r.info.Bytes = t.next-1, t.bytes
		break
	}
	return r
}

// raw returns the size of the log before compression.
func (r *summary) raw() int64 {
	raw := r.size
	for _, seg := range r.segs[:len(r.segs)-1] {
		if f, err := openSegment(seg.path); err == nil {
			if size, _, err := f.sizes(); err == nil {
				raw += size
			}
			f.Close()
		}
	}
	return raw
}

// stored returns the size of the log on disk.
func (r *summary) stored() int64 {
	if r.disk == 0 { // it could not be opened
		return sizeOf(r.segs)
	}
	return sizeOf(r.segs[:len(r.segs)-1]) + r.disk
}

// found is how readTail found the file of a segment.
type found struct {
	wrote time.Time // when it was last written to
	moved bool      // it was filed since its name was read
	size  int64     // before compression
	disk  int64     // of the file
}

// readTail reads the end of a segment. A torn end is not an error.
func readTail(id spool.RunID, seg *segment) (tail, found, error) {
	t := tail{next: seg.first}
	f, err := openSegment(seg.path)
	if err != nil {
		return t, found{}, openFault(err, "list", id, seg.path)
	}
	defer f.Close()
	size, fi, err := f.sizes()
	if err != nil {
		return t, found{}, fmt.Errorf("list run %s: %w", id, err)
	}
	at := found{fi.ModTime(), f.file.Name() != seg.path, size, fi.Size()}
	if !t.readFinal(f, size, id) {
		if err := t.scan(f, size, id, nil); err != nil {
			return t, at, fault(err, id, seg.path, t.off)
		}
	}
	return t, at, nil
}
