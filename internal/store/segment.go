package store

import (
	"cmp"
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
	"github.com/spool-run/spool/internal/privatedir"
)

const (
	segmentExt = ".seg"
	seqDigits  = 20
)

// segment is one file of a run. The mu of its journal guards what may change.
type segment struct {
	first spool.Seq // seq of its first event
	path  string

	size  int64 // bytes of whole records; negative if not known
	index offsets
	hint  point // where the last Read ended and the next one probably begins

	learned bool // the index has what the sieve of the file tells
}

func newSegment(dir string, id spool.RunID, first spool.Seq) *segment {
	digits := strconv.FormatUint(uint64(first), 10)
	name := string(id) + "." + strings.Repeat("0", seqDigits-len(digits)) + digits + segmentExt
	return &segment{first: first, path: dir + string(filepath.Separator) + name, size: -1}
}

// wroteBefore reports whether the file was last written before a time.
func (g *segment) wroteBefore(t time.Time) bool {
	fi, err := os.Lstat(g.path)
	return err == nil && fi.ModTime().Before(t)
}

// smaller reports whether the file has fewer bytes than that.
func (g *segment) smaller(bytes int64) bool {
	fi, err := os.Lstat(g.path)
	return err == nil && fi.Size() < bytes
}

// newExt ends the temporary name of the first segment of a run.
const newExt = ".new"

// newPath returns such a name.
func (s *Store) newPath(id spool.RunID) string {
	return filepath.Join(s.runsDir(), string(id)+"."+s.nonce+newExt)
}

// seek returns the nearest known position at or before an event.
func (g *segment) seek(seq spool.Seq) point {
	p := point{seq: g.first, off: int64(len(segmentMagic))}
	if q, ok := g.index.floor(seq); ok {
		p = q
	}
	if g.hint.off > p.off && g.hint.seq <= seq {
		p = g.hint
	}
	return p
}

// parseName splits a file name as newSegment builds it.
func parseName(name string) (id spool.RunID, first spool.Seq, ok bool) {
	stem, found := strings.CutSuffix(name, segmentExt)
	if !found {
		return "", 0, false
	}
	left, digits, found := strings.Cut(stem, ".")
	if !found || len(digits) != seqDigits || spool.RunID(left).Check() != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return "", 0, false
	}
	return spool.RunID(left), spool.Seq(n), true
}

// names are what the names of files tell of runs.
type names struct {
	runs    map[spool.RunID][]*segment // in order; without hidden ones
	renamed map[spool.RunID]bool
	hidden  map[spool.RunID]bool
}

// read adds the names in a directory, of all runs or of one.
func (n *names) read(dir string, only spool.RunID) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	all, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, name := range all {
		if only == "" || strings.HasPrefix(name, string(only)) {
			n.add(dir, name, only)
		}
	}
	return nil
}

// add adds the name of a file in a directory, of all runs or of one.
func (n *names) add(dir, name string, only spool.RunID) {
	if id, ok := strings.CutSuffix(name, hiddenExt); ok {
		n.hidden[spool.RunID(id)] = true
		return
	}
	if id, ok := strings.CutSuffix(name, nameExt); ok {
		n.renamed[spool.RunID(id)] = true
		return
	}
	if id, first, ok := parseName(name); ok && (only == "" || id == only) {
		n.runs[id] = append(n.runs[id], &segment{first: first, path: filepath.Join(dir, name), size: -1})
	}
}

// finish sorts the segments. One that was filed while the names were read may be
// there twice.
func (n *names) finish() {
	for id := range n.hidden {
		delete(n.runs, id)
	}
	for id, segs := range n.runs {
		slices.SortStableFunc(segs, func(a, b *segment) int { return cmp.Compare(a.first, b.first) })
		n.runs[id] = slices.CompactFunc(segs, func(a, b *segment) bool { return a.first == b.first })
	}
}

func newNames() *names {
	return &names{runs: make(map[spool.RunID][]*segment), renamed: make(map[spool.RunID]bool), hidden: make(map[spool.RunID]bool)}
}

// scanUnfiled returns the runs that have a file which is not filed. Of a run that
// is being filed some segments may be filed already, the last one comes last.
func (s *Store) scanUnfiled() (*names, error) {
	n := newNames()
	if err := n.read(s.runsDir(), ""); err != nil {
		return nil, err
	}
	n.finish()
	for id, segs := range n.runs {
		if segs[0].first != 1 {
			var err error
			if n.runs[id], err = s.scanRun(id); err != nil {
				return nil, err
			}
		}
	}
	for id := range n.renamed {
		if n.runs[id] == nil && !n.hidden[id] && id.Check() == nil {
			segs, err := s.scanRun(id)
			if err != nil {
				return nil, err
			}
			if len(segs) > 0 {
				n.runs[id] = segs
			}
		}
	}
	return n, nil
}

// scanAll returns all runs.
func (s *Store) scanAll() (*names, error) {
	n := newNames()
	if err := n.read(s.runsDir(), ""); err != nil {
		return nil, err
	}
	shards, err := s.shards()
	if err != nil {
		return nil, err
	}
	for _, dir := range shards {
		if err := n.read(dir, ""); err != nil {
			return nil, err
		}
	}
	n.finish()
	return n, nil
}

// shards returns the directories of filed runs.
func (s *Store) shards() ([]string, error) {
	return filepath.Glob(filepath.Join(s.runsDir(), "[0-9a-f][0-9a-f]"))
}

// scanRun returns the segments of a run, in order.
func (s *Store) scanRun(id spool.RunID) ([]*segment, error) {
	n := newNames()
	if err := n.read(s.runsDir(), id); err != nil {
		return nil, err
	}
	if len(n.runs) == 0 && !s.mayBeFiled(id) {
		return nil, nil
	}
	if err := n.read(s.shardDir(id), id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	n.finish()
	return n.runs[id], nil
}

// mayBeFiled reports whether a run that is not in the directory runs exists. The index
// tells it sooner than the directory of filed runs, which may be long.
func (s *Store) mayBeFiled(id spool.RunID) bool {
	if exists(newSegment(s.shardDir(id), id, 1).path) {
		return true
	}
	snapshot, err := s.openIndex()
	if err != nil {
		return true // only the directories tell
	}
	_, ok := snapshot.Find(string(id))
	return snapshot.Close() != nil || ok
}

// segments returns the segments of a run, at least one.
func (s *Store) segments(id spool.RunID) ([]*segment, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	segs, err := s.scanRun(id)
	if err != nil {
		return nil, err
	}
	if len(segs) == 0 {
		return nil, fmt.Errorf("run %s: %w", id, fs.ErrNotExist)
	}
	return segs, nil
}

// linkNew gives a file a second name, unless that is taken.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// statOwn describes an open file. It is an error if the file belongs to another
// user, or if other users can change it.
func statOwn(f *os.File) (fs.FileInfo, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return fi, privatedir.CheckFile(f.Name(), fi)
}
