package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store/index"
)

// ErrIncomplete means that a run has not ended, or that the end of its log is
// still being written.
var ErrIncomplete = errors.New("the log of the run is not complete")

// hiddenExt ends the name of a file that hides the segments of a run: the run is
// being removed, or its segments are not all there yet. Such a run does not
// exist.
const hiddenExt = ".hidden"

func (s *Store) hiddenPath(id spool.RunID) string {
	return filepath.Join(s.runsDir(), string(id)+hiddenExt)
}

// hide creates the file that hides a run.
func (s *Store) hide(id spool.RunID) error {
	f, err := os.OpenFile(s.hiddenPath(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove deletes the log of a run. The error is [fs.ErrNotExist] if there is
// none. Its blobs stay until [Store.Sweep] finds that no run can refer to them;
// [Store.RemoveComplete] deletes them too.
func (s *Store) Remove(id spool.RunID) error {
	segs, err := s.segments(id)
	if err != nil {
		return fmt.Errorf("remove run: %w", err)
	}
	return s.removeSegments(id, segs)
}

// removeSegments deletes the files of a run. With several segments it hides the
// run first: after a crash no part of the run is seen.
func (s *Store) removeSegments(id spool.RunID, segs []*segment) error {
	if len(segs) > 1 {
		if err := s.hide(id); err != nil {
			return fmt.Errorf("remove run %s: %w", id, err)
		}
	}
	for _, seg := range segs {
		if err := removeSegment(seg.path); err != nil {
			return fmt.Errorf("remove run %s: %w", id, err)
		}
	}
	// Without it the run is gone, and a sweep finds the rest.
	if err := s.removeWorkspace(id); err != nil {
		return fmt.Errorf("remove run %s: %w", id, err)
	}
	if err := removeSegment(s.namePath(id)); err != nil {
		return fmt.Errorf("remove run %s: %w", id, err)
	}
	if len(segs) > 1 {
		if err := removeFile(s.hiddenPath(id)); err != nil {
			return fmt.Errorf("remove run %s: %w", id, err)
		}
	}
	return nil
}

// removeFile deletes a file that may be gone already.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweepHidden deletes the rest of runs whose removal or import was interrupted.
func (s *Store) sweepHidden(before time.Time) error {
	hidden, err := filepath.Glob(filepath.Join(s.runsDir(), "*"+hiddenExt))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range hidden {
		fi, err := os.Stat(path)
		id := strings.TrimSuffix(filepath.Base(path), hiddenExt)
		if err != nil || !fi.ModTime().Before(before) || spool.RunID(id).Check() != nil {
			continue
		}
		for _, dir := range []string{s.runsDir(), s.shardDir(spool.RunID(id))} {
			rest, err := filepath.Glob(filepath.Join(dir, id+".*"+segmentExt))
			if err != nil {
				return err
			}
			for _, file := range rest {
				errs = append(errs, removeFile(file))
			}
		}
		errs = append(errs, removeFile(path))
	}
	return errors.Join(errs...)
}

// blobLogged is how long after storing a blob a live run has logged the event
// that refers to it, at the latest.
const blobLogged = 10 * time.Second

// RemoveComplete deletes complete runs and the blobs to which no other run
// refers. With dry it deletes nothing and returns what it would delete. The
// error is [fs.ErrNotExist] if a run does not exist and [ErrIncomplete] if one
// is not complete; then it deletes nothing. A corrupt run can be deleted: the
// caller makes sure that no process writes it.
func (s *Store) RemoveComplete(ids []spool.RunID, dry bool) (Swept, error) {
	var swept Swept
	if len(ids) == 0 {
		return swept, nil
	}
	removed := make(map[spool.RunID]summary, len(ids))
	for _, id := range ids {
		segs, err := s.segments(id)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, spool.ErrInvalid) {
			return swept, fmt.Errorf("remove run %.140s: %w", id, fs.ErrNotExist)
		}
		if err != nil {
			return swept, fmt.Errorf("remove run %s: %w", id, err)
		}
		r := summarize(id, segs)
		var corrupt *CorruptError
		if r.err != nil && !errors.As(r.err, &corrupt) {
			return swept, fmt.Errorf("remove run %s: %w", id, r.err)
		}
		if !r.sealed && corrupt == nil {
			return swept, fmt.Errorf("remove run %s: %w", id, ErrIncomplete)
		}
		removed[id] = r
	}
	blobs, err := s.blobsOf(removed)
	if err != nil {
		return swept, fmt.Errorf("remove runs: %w", err)
	}
	if len(blobs) > 0 {
		all, err := s.mayHave(blobs)
		if err == nil {
			err = s.keepShared(blobs, all, removed)
		}
		if err != nil {
			return swept, fmt.Errorf("remove runs: %w", err)
		}
	}
	var gone, unfiled []index.Key
	defer func() {
		s.unindex(append(gone, s.indexed(unfiled)...))
		if !dry {
			s.noteRemoved(swept.Runs)
		}
	}()
	for _, id := range slices.Sorted(maps.Keys(removed)) {
		r := removed[id]
		segs := r.segs
		size := sizeOf(segs) + s.workspaceSize(&r.info)
		if !dry {
			if err := failpoint.Inject("store.remove"); err != nil {
				return swept, err
			}
			if err := s.removeSegments(id, segs); err != nil {
				return swept, err
			}
			key := index.Key{Created: r.info.Created.UnixNano(), ID: string(id)}
			if filepath.Dir(segs[0].path) == s.shardDir(id) {
				gone = append(gone, key)
			} else {
				unfiled = append(unfiled, key)
			}
		}
		swept.Runs = append(swept.Runs, id)
		swept.Bytes += size
	}
	for d, b := range blobs {
		if !dry {
			gone, err := s.removeBlob(d, b.stored)
			if err != nil {
				return swept, fmt.Errorf("remove blob: %w", err)
			}
			if !gone {
				continue
			}
		}
		swept.Blobs++
		swept.Bytes += b.size
	}
	return swept, nil
}

// sizeOf returns the size of segments on disk.
func sizeOf(segs []*segment) (size int64) {
	for _, seg := range segs {
		if fi, err := statSegment(seg.path); err == nil {
			size += fi.Size()
		}
	}
	return size
}

// storedBlob is a blob that may be deleted.
type storedBlob struct {
	size   int64
	stored time.Time // when it was last stored
}

// blobsOf returns the blobs to which runs that are to be removed refer, without
// those that were stored again after all these runs had ended.
func (s *Store) blobsOf(runs map[spool.RunID]summary) (map[spool.Digest]storedBlob, error) {
	blobs := make(map[spool.Digest]storedBlob)
	for id, r := range runs {
		err := s.digests(id, r, func(d spool.Digest) {
			path, err := s.blobPath(d)
			if err != nil {
				return
			}
			if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() {
				blobs[d] = storedBlob{fi.Size(), fi.ModTime()}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return blobs, nil
}

// mayHave returns the segments of the runs that may refer to one of some blobs: those
// that are not filed, and those of which the index has a blob of the same hash or only
// that they have many. The logs of these are read to find out.
func (s *Store) mayHave(blobs map[spool.Digest]storedBlob) (map[spool.RunID][]*segment, error) {
	n, err := s.scanUnfiled()
	if err != nil {
		return nil, err
	}
	snapshot, err := s.openIndex()
	if err != nil {
		n, err := s.scanAll()
		if err != nil {
			return nil, err
		}
		return n.runs, nil
	}
	terms := []index.Term{index.NewTerm(termManyBlobs)}
	for d := range blobs {
		terms = append(terms, index.NewTerm(termBlob, string(d)))
	}
	for _, term := range terms {
		for e := range snapshot.Select(index.Query{Terms: []index.Term{term}}) {
			id := spool.RunID(e.ID)
			if n.runs[id] != nil || n.hidden[id] || id.Check() != nil {
				continue
			}
			segs := []*segment{newSegment(s.shardDir(id), id, 1)}
			if e.Flags&index.Segmented != 0 {
				if segs, err = s.segments(id); errors.Is(err, fs.ErrNotExist) {
					continue // removed meanwhile
				} else if err != nil {
					return nil, errors.Join(err, snapshot.Close())
				}
			}
			n.runs[id] = segs
		}
	}
	return n.runs, snapshot.Close()
}

// keepShared takes from blobs those to which a remaining run refers, or may be
// about to refer.
func (s *Store) keepShared(blobs map[spool.Digest]storedBlob, all map[spool.RunID][]*segment, removed map[spool.RunID]summary) error {
	for id, segs := range all {
		if len(blobs) == 0 {
			return nil
		}
		if _, ok := removed[id]; ok {
			continue
		}
		r := summarize(id, segs)
		if errors.Is(r.err, fs.ErrNotExist) {
			continue
		}
		if !r.sealed && r.info.Engine != spool.EngineProcess {
			now := s.now()
			maps.DeleteFunc(blobs, func(_ spool.Digest, b storedBlob) bool { return now.Sub(b.stored) < blobLogged })
		}
		if err := s.digests(id, r, func(d spool.Digest) { delete(blobs, d) }); err != nil {
			return err
		}
	}
	return nil
}

var digestPattern = lazyregexp.New(`sha256:[0-9a-f]{64}`)

// digests calls found for every digest in the events of a run. It reads only
// the Data of events, so output costs little. A process has no blobs.
func (s *Store) digests(id spool.RunID, r summary, found func(spool.Digest)) error {
	if r.info.Engine == spool.EngineProcess && r.err == nil {
		return nil
	}
	for _, seg := range r.segs {
		if err := scanData(seg, func(data []byte) { EachDigest(data, found) }); err != nil {
			return fmt.Errorf("look for blobs of run %s: %w", id, err)
		}
	}
	return nil
}

// EachDigest calls found for every digest of a blob in the Data of an event.
func EachDigest(data []byte, found func(spool.Digest)) {
	if bytes.Contains(data, []byte(digestPrefix)) {
		for _, d := range digestPattern().FindAll(data, -1) {
			found(spool.Digest(d))
		}
	}
}

// scanData calls f for the Data of every event in a segment. It ends where the
// segment is torn or corrupt.
func scanData(seg *segment, f func([]byte)) error {
	file, err := openSegment(seg.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return ignoreDamage(err)
	}
	defer file.Close()
	size, _, err := file.sizes()
	if err != nil {
		return err
	}
	return scanRecords(&window{f: file, size: size, step: indexStep}, f)
}

// scanRecords is scanData for a segment that is open.
func scanRecords(w *window, f func([]byte)) error {
	for off := int64(len(segmentMagic)); off+record.HeaderSize <= w.size; {
		b, err := w.peek(off, record.HeaderSize)
		if err != nil {
			return ignoreDamage(err)
		}
		h, err := record.ParseHead(b)
		if err != nil {
			return nil // the footer, or damage
		}
		if h.Place == 0 && h.Data > 0 && h.Data <= h.Size-record.HeaderSize {
			if b, err = w.peek(off, record.HeaderSize+h.Data); err != nil {
				return ignoreDamage(err)
			}
			f(b[record.HeaderSize:])
		}
		off += int64(h.Size)
	}
	return nil
}

func ignoreDamage(err error) error {
	if errors.Is(err, errTorn) || errors.Is(err, blockfile.ErrDamaged) {
		return nil
	}
	return err
}

// removeBlob deletes a blob, unless a run has stored it again since. Another
// process may do that at this moment: so the blob loses its name first, and gets
// it back if it was stored again.
func (s *Store) removeBlob(d spool.Digest, stored time.Time) (bool, error) {
	path, err := s.blobPath(d)
	if err != nil {
		return false, err
	}
	s.blobMu.Lock()
	defer s.blobMu.Unlock()
	temp := filepath.Join(s.blobsDir(), tempPrefix+"removed-"+s.nonce)
	if err := os.Rename(path, temp); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	fi, err := os.Lstat(temp)
	if err != nil {
		return false, err
	}
	if !fi.ModTime().Equal(stored) {
		if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		return false, os.Remove(temp)
	}
	return true, os.Remove(temp)
}

// Removed reports whether the run does not exist any more.
func (j *Journal) Removed() bool {
	j.mu.Lock()
	segs := j.segs
	j.mu.Unlock()
	return j.removed(segs)
}

// removed is [Journal.Removed]. In this order: the file that hides the run
// exists from before the first segment is deleted until after the last is.
func (j *Journal) removed(segs []*segment) bool {
	if len(segs) > 1 {
		if _, err := os.Lstat(j.store.hiddenPath(j.id)); err == nil {
			return true
		}
	}
	_, err := statSegment(segs[len(segs)-1].path)
	return errors.Is(err, fs.ErrNotExist)
}
