package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// Storage describes what runs take on disk, with groups as [spool.StorageGrouper]
// says; by may be empty.
//
// The index has the sizes of filed runs; of each group one log is read for its name.
// Blobs and workspaces are counted by reading their directories.
func (s *Store) Storage(by string) (spool.Storage, error) {
	st := spool.Storage{By: by}
	g, err := newGrouping(by)
	if err != nil {
		return st, err
	}
	n, err := s.scanUnfiled()
	if err != nil {
		return st, fmt.Errorf("measure runs: %w", err)
	}
	if snapshot, err := s.openIndex(); err == nil {
		all := snapshot.Totals(nil)
		st.FinishedRuns, st.FinishedBytes, st.FinishedRawBytes, st.IndexBytes = all.Runs, all.Bytes, all.Raw, snapshot.Size()
		g.addFiled(s, snapshot, n)
		for id := range n.runs { // they are counted below
			if e, ok := snapshot.Find(string(id)); ok {
				st.FinishedRuns--
				st.FinishedBytes -= e.Bytes
				st.FinishedRawBytes -= e.Raw
			}
		}
		if err := snapshot.Close(); err != nil {
			return st, fmt.Errorf("measure runs: %w", err)
		}
		st.WorkspaceBytes = s.filedWorkspaces(n)
	} else if n, err = s.scanAll(); err != nil {
		return st, fmt.Errorf("measure runs: %w", err)
	}
	for _, r := range s.summaries(n, time.Time{}) {
		size, raw := sizeOf(r.segs), r.raw()
		if r.sealed {
			st.FinishedRuns++
			st.FinishedBytes += size
			st.FinishedRawBytes += raw
			st.WorkspaceBytes += s.workspaceSize(&r.info)
		} else {
			st.LiveRuns++
			st.LiveBytes += size
		}
		g.add(g.nameOf(&r.info), index.Sum{Runs: 1, Bytes: size, Raw: raw})
	}
	st.FinishedBytes += st.WorkspaceBytes
	st.Groups = g.sorted()
	err = filepath.WalkDir(s.blobsDir(), func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || !isDigest(d.Name()) {
			return err
		}
		if fi, err := d.Info(); err == nil {
			st.Blobs++
			st.BlobBytes += fi.Size()
		}
		return nil
	})
	if err != nil {
		return st, fmt.Errorf("measure blobs: %w", err)
	}
	return st, nil
}

// grouping divides runs into groups. Without a key there are none.
type grouping struct {
	by    string
	label string // if it is by label
	sums  map[string]index.Sum
}

// What runs can be grouped by, beside a label.
const (
	byEngine = "engine"
	byDay    = "day"
	byLabel  = "label="
)

func newGrouping(by string) (*grouping, error) {
	g := &grouping{by: by, sums: make(map[string]index.Sum)}
	switch name, isLabel := strings.CutPrefix(by, byLabel); {
	case isLabel && name != "":
		g.by, g.label = byLabel, name
	case by != "" && by != byEngine && by != byDay:
		return nil, fmt.Errorf("%w: storage by %.100q: use engine, day or label=NAME", spool.ErrInvalid, by)
	}
	return g, nil
}

func (g *grouping) add(name string, sum index.Sum) {
	if g.by == "" {
		return
	}
	have := g.sums[name]
	have.Runs, have.Bytes, have.Raw = have.Runs+sum.Runs, have.Bytes+sum.Bytes, have.Raw+sum.Raw
	g.sums[name] = have
}

// nameOf returns the group of a run.
func (g *grouping) nameOf(info *spool.Info) string {
	switch g.by {
	case byEngine:
		return info.Engine
	case byDay:
		return info.Created.UTC().Format(time.DateOnly)
	case byLabel:
		return info.Labels[g.label]
	}
	return ""
}

// addFiled adds the runs of the index that are not among others.
func (g *grouping) addFiled(s *Store, snapshot *index.Snapshot, others *names) {
	name := func(term func(string) index.Term) index.Namer {
		return func(e *index.Entry) (string, index.Term, bool) {
			r := s.describe(e, others)
			text := g.nameOf(&r.info)
			return text, term(text), r.err == nil
		}
	}
	switch g.by {
	case byDay:
		for day, sum := range snapshot.GroupByDay() {
			g.add(time.Unix(day*24*60*60, 0).UTC().Format(time.DateOnly), sum)
		}
	case byEngine:
		engine := func(text string) index.Term { return index.NewTerm(termEngine, text) }
		for text, sum := range snapshot.GroupBy(nil, name(engine)) {
			g.add(text, sum)
		}
	case byLabel:
		has := labelTerm(g.label, "")
		all := snapshot.Totals(nil)
		rest := index.Sum{Runs: all.Runs, Bytes: all.Bytes, Raw: all.Raw}
		for text, sum := range snapshot.GroupBy(&has, name(func(text string) index.Term { return labelTerm(g.label, text) })) {
			g.add(text, sum)
			rest.Runs, rest.Bytes, rest.Raw = rest.Runs-sum.Runs, rest.Bytes-sum.Bytes, rest.Raw-sum.Raw
		}
		g.add("", rest)
	}
	for id := range others.runs { // they are added by themselves
		if e, ok := snapshot.Find(string(id)); ok {
			r := s.describe(&e, others)
			g.add(g.nameOf(&r.info), index.Sum{Runs: -1, Bytes: -e.Bytes, Raw: -e.Raw})
		}
	}
}

// sorted returns the groups, the largest first, days in their order.
func (g *grouping) sorted() []spool.StorageGroup {
	var groups []spool.StorageGroup
	for name, sum := range g.sums {
		if sum.Runs > 0 {
			groups = append(groups, spool.StorageGroup{Name: name, Runs: sum.Runs, Bytes: sum.Bytes, RawBytes: sum.Raw})
		}
	}
	slices.SortFunc(groups, func(a, b spool.StorageGroup) int {
		if g.by == byDay {
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return groups
}
