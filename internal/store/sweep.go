package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store/index"
	"github.com/spool-run/spool/internal/workspace"
)

// Swept describes what a sweep has removed.
type Swept struct {
	Runs  []spool.RunID
	Blobs int
	Bytes int64 // of both
	// More means that the sweep ended before all was removed.
	More bool
}

const (
	// blobGrace is how long a blob is kept in any case. It covers the time
	// between storing the blob and logging its event, and clocks that differ.
	blobGrace = time.Hour
	// sweepBatch is how many runs one sweep removes, so that it ends soon and
	// needs little memory.
	sweepBatch = 4096
	// sweepStep is how many runs a sweep removes before it rests.
	sweepStep = 16
)

// Sweep deletes complete runs as a policy says: first those that are too old, then
// those that ended first until the rest is within the bounds. Runs for which keep
// returns true stay, and so do runs that are not complete; the bytes of both count.
// A nil keep protects none.
//
// It removes a limited number of runs and says if there are more. Every few runs
// it calls rest, if that is not nil, which may wait: so a sweep of many runs leaves
// the machine to others. It holds no lock while it deletes logs.
//
// Once no run is left to remove it also deletes the blobs to which no run can refer,
// because they were last stored before the oldest remaining run was created. After an
// error it continues with the rest.
func (s *Store) Sweep(p Retention, keep func(spool.RunID) bool, rest func()) (Swept, error) {
	var swept Swept
	w, err := s.newSweep(p, keep)
	if err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	err = w.due(func(c *sweepable, _ func() string) bool {
		if err := w.remove(c); err != nil {
			w.errs = append(w.errs, err)
			return true
		}
		c.removed = true
		swept.Bytes += c.bytes
		swept.Runs = append(swept.Runs, c.id)
		if rest != nil && len(swept.Runs)%sweepStep == 0 {
			rest()
		}
		swept.More = len(swept.Runs) >= sweepBatch
		return !swept.More
	})
	s.unindex(w.gone)
	s.noteRemoved(swept.Runs)
	if err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	if errs := w.errs; !swept.More {
		before := w.now.Add(-blobGrace)
		errs = append(errs, s.sweepNew(before), s.sweepSpares(before), s.sweepHidden(before), s.sweepImports(before), s.sweepWorkspaces(before))
		oldest, err := w.oldest()
		if err == nil {
			err = s.sweepBlobs(oldest.Add(-blobGrace), &swept)
		}
		w.errs = append(errs, err)
	}
	if err := errors.Join(w.errs...); err != nil {
		return swept, fmt.Errorf("sweep: %w", err)
	}
	return swept, nil
}

// Due is a run that a policy would delete.
type Due struct {
	Run spool.RunID
	Why string
}

// Due yields the runs that [Store.Sweep] would delete now, with the reasons.
func (s *Store) Due(p Retention, keep func(spool.RunID) bool) iter.Seq2[Due, error] {
	return func(yield func(Due, error) bool) {
		w, err := s.newSweep(p, keep)
		if err == nil {
			err = w.due(func(c *sweepable, why func() string) bool {
				c.removed = true
				return yield(Due{c.id, why()}, nil)
			})
		}
		if err != nil {
			yield(Due{}, fmt.Errorf("look for runs to delete: %w", err))
		}
	}
}

// sweep is one [Store.Sweep] or [Store.Due].
type sweep struct {
	store   *Store
	policy  Retention
	keep    func(spool.RunID) bool
	now     time.Time
	names   *names
	indexed bool                 // the filed runs are in the index
	unfiled []sweepable          // complete, in the order of their ends
	live    []time.Time          // when the others were created
	bytes   int64                // of all runs
	gone    []index.Key          // removed runs that the index may have
	taken   map[spool.RunID]bool // filed runs that are removed
	errs    []error
}

// sweepable is a complete run.
type sweepable struct {
	info    spool.Info // only ID, Created, Engine and Labels; of a filed run as far as it is needed
	id      spool.RunID
	ended   time.Time
	bytes   int64
	segs    []*segment // if it is not filed
	filed   bool
	entry   index.Entry // if it is filed
	removed bool
}

// newSweep reads the runs that are not filed.
func (s *Store) newSweep(p Retention, keep func(spool.RunID) bool) (*sweep, error) {
	w := &sweep{store: s, policy: p, keep: keep, now: s.now(), indexed: true, taken: make(map[spool.RunID]bool)}
	var err error
	if w.names, err = s.scanUnfiled(); err != nil {
		return nil, err
	}
	if snapshot, err := s.openIndex(); err != nil {
		w.indexed = false
		if w.names, err = s.scanAll(); err != nil {
			return nil, err
		}
	} else if err := snapshot.Close(); err != nil {
		return nil, err
	}
	for _, r := range s.summaries(w.names, time.Time{}) {
		c := sweepable{id: r.info.ID, info: r.info, ended: r.ages(), bytes: s.workspaceSize(&r.info), segs: r.segs}
		for _, seg := range r.segs {
			if fi, err := statSegment(seg.path); err == nil {
				c.bytes += fi.Size()
			} else if !errors.Is(err, fs.ErrNotExist) {
				w.errs = append(w.errs, err)
			}
		}
		w.bytes += c.bytes
		if r.err != nil || !r.sealed || keep != nil && keep(c.id) {
			w.live = append(w.live, r.info.Created)
			continue
		}
		w.unfiled = append(w.unfiled, c)
	}
	slices.SortFunc(w.unfiled, compareEnds)
	return w, nil
}

func compareEnds(a, b sweepable) int {
	return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.id, b.id))
}

// due calls f for every run that the policy deletes, with the reason, until it
// returns false. F says in the run whether it removed it.
func (w *sweep) due(f func(c *sweepable, why func() string) bool) error {
	p, s := &w.policy, w.store
	before := int64(index.Never)
	if p.Age > 0 {
		before = w.now.Add(-p.Age).UnixNano()
	}
	more := true
	take := func(c *sweepable, why func() string) bool {
		more = f(c, why)
		if c.removed && c.filed {
			w.taken[c.id] = true
		}
		return more
	}
	err := w.each(before, p.rules(w.now), func(c *sweepable) bool {
		rule := p.ruleFor(&c.info)
		if c.filed && len(p.Labels) > 0 {
			// The index only guesses which labels a run has.
			r := s.describe(&c.entry, w.names)
			if rule = p.ruleFor(&r.info); r.err == nil && !rule.old(w.now, c.ended) {
				return true
			}
		}
		return take(c, func() string { return rule.why(w.now.Sub(c.ended)) })
	})
	if err != nil || !more || p.Runs <= 0 && p.TotalBytes <= 0 {
		return err
	}
	if p.Runs > 0 {
		// An audit log does not count as a run.
		rules := append(p.exempt(), LabelRule{Name: record.LabelAudit, Age: Forever}.indexed(w.now))
		over, countErr := w.count(rules)
		if over -= p.Runs; countErr != nil {
			return countErr
		}
		before := int64(math.MaxInt64)
		if over <= 0 { // no run need be looked for
			before = index.Never
		}
		err = w.each(before, rules, func(c *sweepable) bool {
			if over <= 0 {
				return false
			}
			take(c, func() string { return fmt.Sprintf("it is not among the newest %d runs", p.Runs) })
			if c.removed {
				over--
			}
			return more
		})
	}
	if err != nil || !more || p.TotalBytes <= 0 {
		return err
	}
	total, err := w.size()
	if err != nil || total <= p.TotalBytes { // and no run need be looked for
		return err
	}
	return w.each(math.MaxInt64, p.exempt(), func(c *sweepable) bool {
		if total <= p.TotalBytes {
			return false
		}
		take(c, func() string {
			return fmt.Sprintf("all logs together exceed %s, and it is among those that ended first", sizeText(p.TotalBytes))
		})
		if c.removed {
			total -= c.bytes
		}
		return more
	})
}

// each calls f for the complete runs that ended before a time, or before that of a
// rule, in the order of their ends, until it returns false.
func (w *sweep) each(before int64, rules []index.AgeRule, f func(*sweepable) bool) error {
	unfiled := w.unfiled
	// next calls f for the runs that are not filed and ended before c.
	next := func(c *sweepable) bool {
		for len(unfiled) > 0 && (c == nil || compareEnds(unfiled[0], *c) < 0) {
			u := &unfiled[0]
			unfiled = unfiled[1:]
			if !u.removed && u.ended.UnixNano() < index.LimitOf(labelTerms(u.info.Labels), rules, before) && !f(u) {
				return false
			}
		}
		return true
	}
	q := index.AgeQuery{Before: before, Rules: rules, Most: sweepBatch}
	for w.indexed {
		page, err := w.page(q)
		if err != nil {
			return err
		}
		for i := range page {
			id := spool.RunID(page[i].ID)
			if w.names.runs[id] != nil || w.taken[id] || w.keep != nil && w.keep(id) {
				continue
			}
			c := sweepable{id: id, info: spool.Info{ID: id}, ended: time.Unix(0, page[i].Ended), bytes: page[i].Bytes, filed: true, entry: page[i]}
			if page[i].Flags&index.Workspace != 0 {
				c.bytes += workspace.Stored(filepath.Join(w.store.workspacesDir(), page[i].ID))
			}
			if !next(&c) || !f(&c) {
				return nil
			}
		}
		if len(page) < q.Most {
			break
		}
		q.After = &page[len(page)-1]
	}
	next(nil)
	return nil
}

// page asks the index.
func (w *sweep) page(q index.AgeQuery) ([]index.Entry, error) {
	snapshot, err := w.store.openIndex()
	if err != nil {
		return nil, err
	}
	return snapshot.Ended(q), snapshot.Close()
}

// totals returns the sums of the index.
func (w *sweep) totals(rules []index.AgeRule) (t index.Totals, err error) {
	if !w.indexed {
		return index.Totals{Oldest: math.MaxInt64}, nil
	}
	snapshot, err := w.store.openIndex()
	if err != nil {
		return t, err
	}
	t = snapshot.Totals(rules)
	for id := range w.names.runs { // they are among those that are not filed
		if e, ok := snapshot.Find(string(id)); ok {
			t.Runs--
			t.Bytes -= e.Bytes
		}
	}
	for id := range w.taken { // they are in the index until the end of the sweep
		if e, ok := snapshot.Find(string(id)); ok {
			t.Runs--
			t.Bytes -= e.Bytes
		}
	}
	return t, snapshot.Close()
}

// count returns how many complete runs there are that rules do not exempt.
func (w *sweep) count(rules []index.AgeRule) (int, error) {
	t, err := w.totals(rules)
	n := t.Runs - t.Exempt
	for i := range w.unfiled {
		if c := &w.unfiled[i]; !c.removed && index.LimitOf(labelTerms(c.info.Labels), rules, 0) != index.Never {
			n++
		}
	}
	return n, err
}

// size returns the size of all runs.
func (w *sweep) size() (int64, error) {
	t, err := w.totals(nil)
	size := w.bytes + t.Bytes + w.store.filedWorkspaces(w.names)
	for i := range w.unfiled {
		if c := &w.unfiled[i]; c.removed {
			size -= c.bytes
		}
	}
	return size, err
}

// oldest returns when the oldest remaining run was created.
func (w *sweep) oldest() (time.Time, error) {
	t, err := w.totals(nil)
	oldest := w.now
	if first := time.Unix(0, t.Oldest); first.Before(oldest) {
		oldest = first
	}
	for i := range w.unfiled {
		if c := &w.unfiled[i]; !c.removed {
			w.live = append(w.live, c.info.Created)
		}
	}
	for _, created := range w.live {
		if !created.IsZero() && created.Before(oldest) {
			oldest = created
		}
	}
	return oldest, err
}

// remove deletes a run, which may be gone already.
func (w *sweep) remove(c *sweepable) error {
	s := w.store
	if err := failpoint.Inject("store.sweep"); err != nil {
		return err
	}
	if !c.filed { // it may be by now, which makes no difference
		return s.removeSegments(c.id, c.segs)
	}
	w.gone = append(w.gone, c.entry.Key())
	if c.entry.Flags&index.Segmented == 0 {
		return s.removeSegments(c.id, []*segment{newSegment(s.runsDir(), c.id, 1)})
	}
	if err := s.Remove(c.id); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ages returns from when on a run ages.
func (r *summary) ages() time.Time {
	ended := r.info.Ended
	if at, err := time.Parse(time.RFC3339, r.info.Labels[LabelImported]); err == nil && at.After(ended) {
		ended = at
	}
	if ended.IsZero() {
		ended = r.wrote
	}
	return ended
}

// sweepNew deletes the files of runs that did not start because their owner died.
func (s *Store) sweepNew(before time.Time) error {
	files, err := filepath.Glob(filepath.Join(s.runsDir(), "*"+newExt))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if fi, err := os.Stat(file); err == nil && fi.ModTime().Before(before) {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
