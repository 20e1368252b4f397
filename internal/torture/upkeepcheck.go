package torture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

// keptRun is a run of a state directory, as it must be.
type keptRun struct {
	info  string // its description
	log   [sha256.Size]byte
	blobs []spool.Digest
	old   bool // prune deletes it
	mayGo bool // it may be gone
	gone  bool
}

func (u *upkeep) open() (*store.Store, error) {
	return store.Open(u.dir, store.Options{SegmentBytes: upkeepSegment})
}

// generate fills the directory with finished runs, in the layout of earlier versions.
func (u *upkeep) generate() (err error) {
	s, err := u.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	u.runs = make(map[string]*keptRun)
	r := u.random
	for i := range upkeepRuns {
		at := u.began.Add(-time.Duration(1+r.IntN(47)) * time.Hour) // none becomes old meanwhile
		if r.IntN(2) == 0 {
			at = at.Add(-upkeepAge)
		}
		info := spool.Info{
			ID: spool.RunID(fmt.Sprintf("%c%c%d", 'a'+rune(r.IntN(4)), 'a'+rune(r.IntN(4)), i)), Engine: []string{spool.EngineProcess, "kernel"}[r.IntN(2)],
			Name: []string{"", "build-1", "build-2", "deploy"}[r.IntN(4)], Created: at, State: spool.StateRunning,
			Labels: map[string]string{"team": fmt.Sprint(r.IntN(3))},
		}
		if r.IntN(5) == 0 {
			info.Labels["keep"] = "forever"
		}
		run := &keptRun{}
		if err := u.write(s, &info, run); err != nil {
			return fmt.Errorf("make run %s: %w", info.ID, err)
		}
		run.old = u.began.Sub(info.Ended) > upkeepAge && info.Labels["keep"] == ""
		u.runs[string(info.ID)] = run
		if r.IntN(5) == 0 {
			if err := s.Rename(info.ID, "renamed"); err != nil {
				return err
			}
		}
	}
	for info, err := range s.List() {
		if err != nil {
			return err
		}
		run := u.runs[string(info.ID)]
		run.info = describe(&info)
		if run.log, err = logSum(s, info.ID); err != nil {
			return err
		}
	}
	return nil
}

// write writes a run, some of which are large enough to be compressed.
func (u *upkeep) write(s *store.Store, info *spool.Info, run *keptRun) error {
	r := u.random
	j, err := s.Create(*info)
	if err != nil {
		return err
	}
	events := 1 + r.IntN(6)
	if r.IntN(3) == 0 {
		events = 24
	}
	for seq := 1; seq <= events; seq++ {
		e := spool.Event{Seq: spool.Seq(seq), Time: info.Created, Kind: spool.KindOutput, Stream: spool.Stdout}
		e.Bytes = bytes.Repeat(fmt.Appendf(nil, "line %d of %s\n", r.IntN(1000), info.ID), 1+r.IntN(800))
		if info.Engine != spool.EngineProcess && seq == 1 {
			blob, err := s.PutBlob("text/plain", strings.NewReader(fmt.Sprint("blob ", r.IntN(8))))
			if err != nil {
				return err
			}
			run.blobs = append(run.blobs, blob.Digest)
			e = spool.Event{Seq: 1, Time: info.Created, Kind: "display", Data: fmt.Appendf(nil, `{"text/plain":{"blob":"%s"}}`, blob.Digest)}
		}
		if err := j.Append(&e); err != nil {
			return err
		}
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, info.Created.Add(time.Minute), &spool.Outcome{Kind: spool.Exited}
	return errors.Join(j.Seal(*info), j.Close())
}

// logSum returns a sum of all records of a run.
func logSum(s *store.Store, id spool.RunID) (sum [sha256.Size]byte, err error) {
	j, err := s.Open(id)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	h := sha256.New()
	var buf []byte
	for after := spool.Seq(0); ; {
		var next spool.Seq
		if buf, next, err = j.ReadRecords(buf[:0], after, 1<<20); err != nil {
			return sum, err
		}
		if next == after {
			return [sha256.Size]byte(h.Sum(nil)), nil
		}
		_, _ = h.Write(buf) // never fails
		after = next
	}
}

// mayGo lets old runs be gone from now on.
func (u *upkeep) mayGo() {
	for _, run := range u.runs {
		run.mayGo = run.old
	}
}

// mustBeGone checks that prune has deleted old runs.
func (u *upkeep) mustBeGone() {
	for id, run := range u.runs {
		if run.old != run.gone {
			u.violate(Invented, "run %s: prune deleted it is %v, want %v", id, run.gone, run.old)
		}
	}
}

// list checks that a list has every run once, as it was. With several processes a run
// that may go can be in it or not.
func (u *upkeep) list(when string) (err error) {
	s, err := u.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	u.listed(s, when)
	return nil
}

func (u *upkeep) listed(s *store.Store, when string) map[string]bool {
	seen := make(map[string]bool)
	for info, err := range s.List() {
		run := u.runs[string(info.ID)]
		switch {
		case err != nil:
			u.violate(Corrupted, "%s: list: %v", when, err)
		case run == nil || run.gone:
			u.violate(Invented, "%s: run %s", when, info.ID)
		case seen[string(info.ID)]:
			u.violate(Repeated, "%s: run %s", when, info.ID)
		case run.info != describe(&info):
			u.violate(Corrupted, "%s: run %s is described as %s, and was as %s", when, info.ID, describe(&info), run.info)
		}
		seen[string(info.ID)] = true
	}
	for id, run := range u.runs {
		if !seen[id] && !run.mayGo {
			u.violate(Lost, "%s: run %s", when, id)
		}
	}
	return seen
}

// check checks lists, logs and blobs, while no process works. A run that is gone
// stays so.
func (u *upkeep) check(when string) (err error) {
	s, err := u.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	seen := u.listed(s, when)
	for id, run := range u.runs {
		if run.gone {
			continue
		}
		sum, err := logSum(s, spool.RunID(id))
		if !seen[id] {
			run.gone = true
			if !errors.Is(err, fs.ErrNotExist) {
				u.violate(Corrupted, "%s: run %s is not listed and can be read: %v", when, id, err)
			}
			continue
		}
		if err != nil || sum != run.log {
			u.violate(Corrupted, "%s: the log of run %s differs: %v", when, id, err)
		}
		for _, d := range run.blobs {
			b, err := s.Blob(d)
			if err != nil {
				u.violate(Lost, "%s: a blob of run %s: %v", when, id, err)
				continue
			}
			if err := b.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareIndexes checks that the index answers like one that is built anew.
func (u *upkeep) compareIndexes(ctx context.Context, job upkeepJob) error {
	before, err := u.answers(ctx)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(u.dir, "index")); err != nil {
		return err
	}
	after, err := u.answers(ctx)
	if err != nil {
		return err
	}
	for i := range before {
		if before[i] != after[i] {
			u.violate(BadReplay, "after %s: the index says %s, and one that is built anew %s", job, before[i], after[i])
		}
	}
	return nil
}

// answers returns what lists by the index have, after the index was built if there is
// none.
func (u *upkeep) answers(ctx context.Context) (texts []string, err error) {
	s, err := u.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, _, err := s.File(ctx, time.Now().Add(time.Hour)); err != nil {
		return nil, err
	}
	for _, f := range []spool.Filter{
		{}, {Oldest: true}, {Prefix: "ab"}, {Name: "build-1"}, {NameGlob: "build-*"}, {NameGlob: "*named"}, {Engine: "kernel"},
		{HasLabels: []string{"keep"}}, {Labels: map[string]string{"team": "1"}}, {Since: u.began.Add(-upkeepAge)}, {Outcome: spool.Exited, Engine: "process"},
	} {
		ids := []spool.RunID{}
		for info, err := range s.Select(f) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, info.ID)
		}
		texts = append(texts, fmt.Sprintf("%s: %v", describe(f), ids))
	}
	st, err := s.Storage("label=team")
	st.IndexBytes = 0
	return append(texts, describe(st)), err
}
