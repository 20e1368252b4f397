package store

import (
	"fmt"

	"github.com/spool-run/spool"
)

// Position is where a journal ends: its last event, and the size of its last
// segment, which is named by its first seq.
type Position struct {
	Last    spool.Seq
	Segment spool.Seq
	Size    int64
	Final   bool // the last event is the last of the log
}

// Position returns where the journal ends.
func (j *Journal) Position() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	end := j.segs[len(j.segs)-1]
	return Position{Last: j.last, Segment: end.first, Size: end.size}
}

// OpenNew returns a journal for reading of a run that another process has just
// created. It reads no file: [Journal.Advance] tells the journal where it ends.
func (s *Store) OpenNew(info spool.Info) (*Journal, error) {
	if err := info.ID.Check(); err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	first := newSegment(s.runsDir(), info.ID, 1)
	return &Journal{
		store: s, id: info.ID, segs: []*segment{first}, info: info, readOnly: true,
		tail: tail{next: 1, info: info},
	}, nil
}

// Reaches reports whether the journal knows of the segment with this first seq, so that
// [Journal.Advance] needs not look for it.
func (j *Journal) Reaches(segment spool.Seq) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.segs) > 0 && segment <= j.segs[len(j.segs)-1].first
}

// Advance tells a journal that was opened for reading where it ends now. That is
// cheaper than [Journal.Refresh].
func (j *Journal) Advance(at Position) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if !j.readOnly || j.tail.sealed {
		return nil
	}
	j.mu.Lock()
	segs := j.segs
	j.mu.Unlock()
	if at.Segment > segs[len(segs)-1].first {
		found, err := j.store.scanRun(j.id)
		if err != nil {
			return fmt.Errorf("advance run %s: %w", j.id, err)
		}
		known := len(segs)
		segs = segs[:known:known]
		for _, seg := range found {
			if seg.first > segs[len(segs)-1].first && seg.first <= at.Segment {
				segs = append(segs, seg)
			}
		}
		if known > 0 && len(segs) > known {
			// It is complete now; its size is that of the file.
			j.mu.Lock()
			segs[known-1].size = -1
			j.mu.Unlock()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.segs = segs
	if end := segs[len(segs)-1]; end.first == at.Segment && at.Size > end.size {
		end.size = at.Size
	}
	j.last = max(j.last, at.Last)
	j.final = j.final || at.Final
	return nil
}
