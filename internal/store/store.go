// Package store keeps the logs of runs, and large values (blobs), in a state
// directory, so that they outlive the process that wrote them.
//
// A run is a sequence of segment files in one flat directory, each named by the
// run and the seq of its first event. The names are the index: they tell the
// segment of a seq.
//
//	runs/<id>.<first seq, 20 digits>.seg
//	runs/<id>.hidden
//	spares/<directory>/<number>.new
//	workspaces/<id>/
//	blobs/<2 hex digits>/<64 hex digits>
//	reserve
//
// A segment is eight bytes of magic, a description of the run, and then
// records of events in the format of package record, with later descriptions of
// the run between them. A complete run ends with a final description and a
// footer, so that List reads only the two ends of a file. Segments of complete
// runs are compressed later, in the form of package blockfile.
//
// An event is written with one write(2): once Append has returned, the death of
// the process cannot lose it. [SyncPolicy] says what the death of the machine
// may lose.
//
// Any number of processes may read a state directory at once. A run has one
// writer; the caller decides which process that is.
package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
)

// The defaults of [Options].
const (
	DefaultSegmentBytes = 64 << 20
	DefaultSyncEvery    = time.Second
)

// Options configure a store. The zero value is usable.
type Options struct {
	SegmentBytes int64            // largest size of a segment; zero means DefaultSegmentBytes
	Sync         SyncPolicy       // what survives the death of the machine
	SyncEvery    time.Duration    // for SyncInterval; zero means DefaultSyncEvery
	Spares       int              // number of prepared files for new runs
	Now          func() time.Time // nil means time.Now
}

// Store is an open state directory. It is safe for concurrent use.
type Store struct {
	dir          string
	segmentBytes int64
	policy       SyncPolicy
	now          func() time.Time
	fsync        func(*os.File) error // replaced by tests
	nonce        string               // part of names that no other store uses
	spares       spares

	stop chan struct{} // ends the syncing goroutine
	done chan struct{} // closed when it has ended; nil if there is none

	reserveMu sync.Mutex
	short     atomic.Bool // the reserve is not full

	verified atomic.Bool // this process has verified the index

	blobMu sync.Mutex // keeps Sweep from deleting a blob that PutBlob just found

	mu       sync.Mutex
	closed   bool
	dirty    bool // the runs directory has names that were not synced
	journals map[*Journal]struct{}
}

// Open opens a state directory and creates it if necessary.
func Open(dir string, o Options) (*Store, error) {
	switch o.Sync {
	case SyncNone, SyncInterval, SyncAlways:
	default:
		return nil, fmt.Errorf("open store: unknown sync policy %q", o.Sync)
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SyncEvery <= 0 {
		o.SyncEvery = DefaultSyncEvery
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		dir:          dir,
		segmentBytes: o.SegmentBytes,
		policy:       o.Sync,
		now:          o.Now,
		fsync:        datasync,
		nonce:        rand.Text(),
		stop:         make(chan struct{}),
		journals:     make(map[*Journal]struct{}),
	}
	s.spares.init(s, o.Spares)
	for _, d := range []string{s.runsDir(), s.blobsDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	if s.policy == SyncInterval {
		s.done = make(chan struct{})
		go s.syncEvery(o.SyncEvery)
	}
	return s, nil
}

// Dir returns the state directory.
func (s *Store) Dir() string { return s.dir }

func (s *Store) runsDir() string  { return filepath.Join(s.dir, "runs") }
func (s *Store) blobsDir() string { return filepath.Join(s.dir, "blobs") }

// sparesDir holds directories of prepared files.
func (s *Store) sparesDir() string { return filepath.Join(s.dir, "spares") }

// Close ends the background work of the store. The caller closes its journals
// before: they are not synced afterwards.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	err := s.spares.close()
	if s.done != nil {
		<-s.done
		err = errors.Join(err, s.syncDirty())
	}
	if err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// Create creates the journal of a new run, described by info. The error is
// [fs.ErrExist] if the id is taken.
func (s *Store) Create(info spool.Info) (*Journal, error) {
	if err := info.ID.Check(); err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	info = cloneInfo(info, spool.Info{})
	info.Last, info.Bytes = 0, 0
	j := &Journal{store: s, id: info.ID, tail: tail{next: 1, info: info}, info: info}
	if err := s.register(j); err != nil {
		return nil, fmt.Errorf("create run %s: %w", info.ID, err)
	}
	if err := j.mayUseRoom(); err != nil {
		s.unregister(j)
		return nil, fmt.Errorf("create run %s: %w", info.ID, err)
	}
	if err := j.begin(); err != nil {
		s.unregister(j)
		return nil, fmt.Errorf("create run %s: %w", info.ID, err)
	}
	return j, nil
}

// Open opens the journal of a run for reading only. The error is
// [fs.ErrNotExist] if there is none. If another process writes the run,
// [Journal.Refresh] reads what it has appended since.
func (s *Store) Open(id spool.RunID) (*Journal, error) {
	// Most runs are complete and have one segment: try it before reading the
	// directory, which may be long.
	if id.Check() == nil {
		if j := s.openSingle(id); j != nil {
			return j, nil
		}
	}
	segs, err := s.segments(id)
	if err != nil {
		return nil, fmt.Errorf("open run: %w", err)
	}
	for {
		end := len(segs) - 1
		j := &Journal{store: s, id: id, segs: segs, tail: tail{next: segs[end].first, info: spool.Info{ID: id}}, readOnly: true}
		err := j.Refresh()
		if j.tail.off == 0 && err == nil && end > 0 {
			segs = segs[:end] // its head is being written; Refresh finds it later
			continue
		}
		var corrupt *CorruptError
		if err != nil && (j.tail.off == 0 || !errors.As(err, &corrupt)) {
			return nil, fmt.Errorf("open run: %w", err)
		}
		// The events before the damage can be read; Read reports the damage.
		s.renamed(&j.info)
		return j, nil
	}
}

// openSingle opens a complete run that has one segment. It returns nil for other
// runs, without reading more than both ends of a file.
func (s *Store) openSingle(id spool.RunID) *Journal {
	seg := newSegment(s.runsDir(), id, 1)
	f, err := openSegment(seg.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	seg.path = f.file.Name() // where it may be filed
	size, _, err := f.sizes()
	j := &Journal{store: s, id: id, segs: []*segment{seg}, readOnly: true}
	if err != nil || !j.tail.readFinal(f, size, id) {
		return nil
	}
	j.publish()
	s.renamed(&j.info)
	return j
}

// register adds a journal to those that the background goroutine syncs.
func (s *Store) register(j *Journal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fs.ErrClosed
	}
	if s.policy == SyncInterval {
		s.journals[j] = struct{}{}
	}
	return nil
}

func (s *Store) unregister(j *Journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.journals, j)
}
