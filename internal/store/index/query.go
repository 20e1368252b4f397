package index

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/flock"
)

// Snapshot is an index at one moment. It is not safe for concurrent use.
type Snapshot struct {
	segments []*segment
	log      recent
	logSize  int64
	newest   []*Entry // those of the log, in the order of their keys
}

const (
	openAttempts = 10               // because the index was being rewritten
	tailWait     = 2 * time.Second  // for a record that is being written
	tailPoll     = time.Millisecond // between two attempts
)

// Open opens an index for reading. The error is [ErrNone] if there is none and
// [ErrDamaged] if it cannot be trusted.
func Open(dir string) (*Snapshot, error) {
	for attempt := 1; ; attempt++ {
		s, err := open(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && attempt < openAttempts:
			// The manifest has changed since it was read.
		case errors.Is(err, errTail):
			return openQuiet(dir)
		default:
			return s, err
		}
	}
}

// errTail means that the log ends with a record that is not whole.
var errTail = errors.New("the log of the index has a torn end")

func open(dir string) (*Snapshot, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	if err := s.openSegments(dir, m); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	b, err := os.ReadFile(filepath.Join(dir, m.Log))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.log, _, err = parseLog(b); err != nil {
		return nil, errors.Join(errTail, err, s.Close())
	}
	s.logSize = int64(len(b))
	s.newest = s.log.newest()
	slices.SortFunc(s.newest, func(a, b *Entry) int { return a.Key().compare(b.Key()) })
	return s, nil
}

// openQuiet opens an index while no process writes it: so a record that is not
// whole is damage.
func openQuiet(dir string) (*Snapshot, error) {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return nil, errors.Join(ErrDamaged, err)
	}
	defer lock.Close()
	for began := time.Now(); ; time.Sleep(tailPoll) {
		ok, err := flock.TryShare(lock)
		if err != nil || !ok && time.Since(began) > tailWait {
			return nil, errors.Join(ErrDamaged, err)
		}
		if ok {
			break
		}
	}
	defer func() { _ = flock.Unlock(lock) }() // closing it does the same
	return open(dir)
}

func (s *Snapshot) openSegments(dir string, m manifest) error {
	for _, file := range m.Segments {
		dead := ""
		if file.Dead != "" {
			dead = filepath.Join(dir, file.Dead)
		}
		seg, err := openSegment(filepath.Join(dir, file.Name), dead, file)
		if err != nil {
			return err
		}
		s.segments = append(s.segments, seg)
	}
	return nil
}

// Close closes the files.
func (s *Snapshot) Close() error {
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.close())
	}
	s.segments = nil
	return errors.Join(errs...)
}

// Len returns the number of entries.
func (s *Snapshot) Len() int {
	n := len(s.newest)
	for _, seg := range s.segments {
		n += seg.rows - seg.ndead
		for _, said := range s.log.said {
			if seg.find(said.key) >= 0 {
				n--
			}
		}
	}
	return n
}

// Query selects entries. The zero value selects all, newest first.
type Query struct {
	Terms  []Term // which an entry must all have
	Prefix string // of the id
	Glob   string // a pattern of [path.Match] that the name matches; empty for any name
	Since  int64  // ended then or later; zero for any time
	Before int64  // created before; zero for any time
	After  Key    // only what comes after it in the order; the zero value for all
	Oldest bool   // the oldest first
	Whole  bool   // entries with their names and terms
}

// Select yields the entries that a query selects, in the order of their keys, and without
// their terms and names unless it asks for them. Some may not match: terms are hashes, and long names are
// cut.
func (s *Snapshot) Select(q Query) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		var names *glob
		if q.Glob != "" {
			names = newGlob(q.Glob)
		}
		sources := make([]source, 0, len(s.segments)+1)
		for _, seg := range s.segments {
			if src := newSegmentSource(seg, &q, names); src != nil {
				sources = append(sources, src)
			}
		}
		sources = append(sources, &logSource{entries: s.newest, q: &q, names: names})
		heads := make([]*Entry, len(sources))
		next := func(i int) {
			for {
				e, ok := sources[i].next()
				if !ok {
					heads[i] = nil
					return
				}
				_, inLog := s.log.said[e.ID]
				if !q.selects(&e) || inLog && i < len(sources)-1 {
					continue
				}
				heads[i] = &e
				return
			}
		}
		for i := range sources {
			next(i)
		}
		for {
			best := -1
			for i, e := range heads {
				if e != nil && (best < 0 || q.less(e, heads[best])) {
					best = i
				}
			}
			if best < 0 || !yield(*heads[best]) {
				return
			}
			next(best)
		}
	}
}

// selects checks what is not checked by way of a column that is sorted.
func (q *Query) selects(e *Entry) bool {
	if q.Since != 0 && e.Ended < q.Since || q.Before != 0 && e.Created >= q.Before || !strings.HasPrefix(e.ID, q.Prefix) {
		return false
	}
	if q.After == (Key{}) {
		return true
	}
	n := e.Key().compare(q.After)
	return q.Oldest && n > 0 || !q.Oldest && n < 0
}

func (q *Query) less(a, b *Entry) bool {
	n := a.Key().compare(b.Key())
	return q.Oldest && n < 0 || !q.Oldest && n > 0
}

// source yields entries in the order of a query.
type source interface{ next() (Entry, bool) }

// logSource yields the entries of the log.
type logSource struct {
	entries []*Entry
	q       *Query
	names   *glob // nil for any
	i       int
}

func (l *logSource) next() (Entry, bool) {
	for ; l.i < len(l.entries); l.i++ {
		e := l.entries[l.i]
		if !l.q.Oldest {
			e = l.entries[len(l.entries)-1-l.i]
		}
		if l.names != nil && !l.names.match([]byte(e.Name)) {
			continue
		}
		if !slices.ContainsFunc(l.q.Terms, func(t Term) bool { return !slices.Contains(e.Terms, t) }) {
			l.i++
			return *e, true
		}
	}
	return Entry{}, false
}

// segmentSource yields entries of a segment: those of rows, of postings, or all,
// between two positions.
type segmentSource struct {
	seg      *segment
	q        *Query
	rowAt    func(i int) int
	checks   [][]byte // postings of further terms
	names    *glob    // to be checked; nil for any
	from, to int
}

func newSegmentSource(seg *segment, q *Query, names *glob) source {
	if seg.rows == seg.ndead || q.Since != 0 && seg.ended < q.Since || q.Before != 0 && seg.first >= q.Before {
		return nil
	}
	s := &segmentSource{seg: seg, q: q, names: names}
	for _, t := range q.Terms {
		s.checks = append(s.checks, seg.postings(t))
	}
	n := seg.rows
	var rows []int // by which the segment is read
	found := q.Prefix != ""
	if found {
		rows = seg.prefixed(q.Prefix)
	} else if names != nil {
		if rows, found = seg.named(names); found {
			s.names = nil
		}
	}
	switch {
	case found:
		n, s.rowAt = len(rows), func(i int) int { return rows[i] }
	case len(s.checks) > 0:
		slices.SortFunc(s.checks, func(a, b []byte) int { return len(a) - len(b) })
		p := s.checks[0]
		s.checks = s.checks[1:]
		n, s.rowAt = len(p)/8, func(i int) int { return posting(p, i) }
	default:
		s.rowAt = func(i int) int { return i }
	}
	// The rows between the cursor and the other end.
	low, high := 0, seg.rows
	if q.Before != 0 {
		high = seg.search(Key{Created: q.Before})
	}
	if q.After != (Key{}) && q.Oldest {
		low = seg.search(q.After)
	} else if q.After != (Key{}) {
		high = min(high, seg.search(q.After))
	}
	s.from = sort.Search(n, func(i int) bool { return s.rowAt(i) >= low })
	s.to = sort.Search(n, func(i int) bool { return s.rowAt(i) >= high })
	return s
}

func (s *segmentSource) next() (Entry, bool) {
	for s.from < s.to {
		i := s.from
		if s.q.Oldest {
			s.from++
		} else {
			s.to--
			i = s.to
		}
		row := s.rowAt(i)
		if row >= s.seg.rows || s.seg.isDead(row) || s.q.Since != 0 && s.seg.endedAt(row) < s.q.Since {
			continue
		}
		if slices.ContainsFunc(s.checks, func(p []byte) bool { return !hasRow(p, row) }) {
			continue
		}
		if s.names != nil && !s.names.match(s.seg.name(row)) {
			continue
		}
		if s.q.Whole {
			return s.seg.whole(row), true
		}
		return s.seg.entry(row), true
	}
	return Entry{}, false
}

// Find returns the entry of an id, without its name and its terms.
func (s *Snapshot) Find(id string) (Entry, bool) {
	if said, inLog := s.log.said[id]; inLog {
		if said.entry == nil {
			return Entry{}, false
		}
		return *said.entry, true
	}
	for _, seg := range s.segments {
		if row, ok := seg.findID(id); ok {
			return seg.entry(row), true
		}
	}
	return Entry{}, false
}

// each calls f for every entry, unordered, without its id, which f reads from the
// segment if there is one. It reads only columns of fixed size. f keeps no pointer
// to the entry.
func (s *Snapshot) each(f func(e *Entry, seg *segment, row int)) {
	masked := s.masked()
	var e Entry
	for _, seg := range s.segments {
		for row := range seg.rows {
			if seg.isDead(row) || len(masked) > 0 && masked[place{seg, row}] {
				continue
			}
			e = seg.fixed(row)
			f(&e, seg, row)
		}
	}
	for _, e := range s.newest {
		f(e, nil, 0)
	}
}

type place struct {
	seg *segment
	row int
}

// masked returns the rows that the log replaces or removes.
func (s *Snapshot) masked() map[place]bool {
	masked := make(map[place]bool)
	for _, seg := range s.segments {
		for _, said := range s.log.said {
			if row := seg.find(said.key); row >= 0 {
				masked[place{seg, row}] = true
			}
		}
	}
	return masked
}
