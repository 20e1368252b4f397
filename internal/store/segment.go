package store

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/privatedir"
)

const (
	segmentExt = ".seg"
	seqDigits  = 20
)

// segment is one file of a run. The mu of its journal guards size, index and
// hint.
type segment struct {
	first spool.Seq // seq of its first event
	path  string

	size  int64 // bytes of whole records; negative if not known
	index index
	hint  point // where the last Read ended and the next one probably begins
}

func newSegment(dir string, id spool.RunID, first spool.Seq) *segment {
	digits := strconv.FormatUint(uint64(first), 10)
	name := string(id) + "." + strings.Repeat("0", seqDigits-len(digits)) + digits + segmentExt
	return &segment{first: first, path: dir + string(filepath.Separator) + name, size: -1}
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

// scanDir returns the segments of every run, or of one, in order.
func (s *Store) scanDir(only spool.RunID) (map[spool.RunID][]*segment, error) {
	runs, _, err := s.scanNames(only)
	return runs, err
}

// scanNames is scanDir that also returns which runs were renamed.
func (s *Store) scanNames(only spool.RunID) (_ map[spool.RunID][]*segment, renamed map[spool.RunID]bool, err error) {
	dir := s.runsDir()
	d, err := os.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, nil, err
	}
	runs := make(map[spool.RunID][]*segment)
	var hidden []spool.RunID
	for _, name := range names {
		if only != "" && !strings.HasPrefix(name, string(only)) {
			continue
		}
		if id, ok := strings.CutSuffix(name, hiddenExt); ok {
			hidden = append(hidden, spool.RunID(id))
			continue
		}
		if id, ok := strings.CutSuffix(name, nameExt); ok {
			if renamed == nil {
				renamed = make(map[spool.RunID]bool)
			}
			renamed[spool.RunID(id)] = true
			continue
		}
		id, first, ok := parseName(name)
		if !ok || only != "" && id != only {
			continue
		}
		runs[id] = append(runs[id], &segment{first: first, path: filepath.Join(dir, name), size: -1})
	}
	for _, id := range hidden {
		delete(runs, id)
	}
	for _, segs := range runs {
		slices.SortFunc(segs, func(a, b *segment) int { return cmp.Compare(a.first, b.first) })
	}
	return runs, renamed, nil
}

// segments returns the segments of a run, at least one.
func (s *Store) segments(id spool.RunID) ([]*segment, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	runs, err := s.scanDir(id)
	if err != nil {
		return nil, err
	}
	if len(runs[id]) == 0 {
		return nil, fmt.Errorf("run %s: %w", id, fs.ErrNotExist)
	}
	return runs[id], nil
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
