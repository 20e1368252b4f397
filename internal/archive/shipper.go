package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/store"
)

// Defaults of [ShipOptions].
const (
	// DefaultRate is how many bytes a second are uploaded.
	DefaultRate = 64 << 20
	// DefaultUploads is how many runs are uploaded at once.
	DefaultUploads = 2
	// DefaultPending is how many bytes may wait for their upload although their
	// runs were deleted.
	DefaultPending = 16 << 30

	// scanEvery is how often a shipper looks for runs that have ended.
	scanEvery = 5 * time.Second
	// fullEvery is how often it looks at all runs, not only at those that ended
	// lately by the clock.
	fullEvery = 6 * time.Hour
	// overlap is how far back it looks beyond the last time.
	overlap = time.Hour
	// firstRetry and lastRetry bound the time between attempts that fail.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// conflictEvery is how often a run is tried again of whose id the archive has
	// another run.
	conflictEvery = time.Hour
	// pruneEvery is how often the retention of the archive is applied.
	pruneEvery = time.Hour
)

// ShipOptions configure a shipper. The zero value of a limit means its default.
type ShipOptions struct {
	Dir   string // the state directory
	Node  string // of this machine, for people
	Epoch uint64 // of this machine in its cluster
	// Rate limits the uploaded bytes of a second, Uploads the runs at once, and
	// Pending the bytes of runs that wait.
	Rate    int64
	Uploads int
	Pending int64
	// Retention limits what the archive has; a zero field sets no bound.
	Retention Retention
	Logger    *slog.Logger
}

// Shipper brings the finished runs of a state directory to an archive, in the
// background. It pins a run first: what waits is in a directory, so that a death at any
// point loses nothing. Of several shippers of a state directory one works.
type Shipper struct {
	opts    ShipOptions
	objects Objects
	pace    pace
	log     *slog.Logger
	nudged  chan struct{}

	store   *store.Store
	pending *pending
	shipped *shipped

	retry     time.Duration // after the next failure
	conflicts map[spool.RunID]time.Time
	corrupt   map[spool.RunID]struct{} // runs whose logs are damaged here
	fullAt    time.Time
	scanned   time.Time
	pruned    time.Time

	mu       sync.Mutex
	status   Status
	reported Status    // as it is in its file
	wrote    time.Time // that file
}

// NewShipper returns a shipper; [Shipper.Run] makes it work.
func NewShipper(o Objects, opts ShipOptions) *Shipper {
	if opts.Rate == 0 {
		opts.Rate = DefaultRate
	}
	if opts.Uploads <= 0 {
		opts.Uploads = DefaultUploads
	}
	if opts.Pending == 0 {
		opts.Pending = DefaultPending
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Shipper{
		opts: opts, objects: o, pace: pace{rate: opts.Rate}, log: log, nudged: make(chan struct{}, 1),
		conflicts: make(map[spool.RunID]time.Time), corrupt: make(map[spool.RunID]struct{}), status: Status{Archive: o.String()},
	}
}

// Nudge has the shipper look for finished runs soon.
func (s *Shipper) Nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// Run ships until ctx ends. It waits while another process ships the same state
// directory. An error means that the state directory cannot be used.
func (s *Shipper) Run(ctx context.Context) error {
	return s.locked(ctx, func() error {
		for {
			wait := scanEvery
			if err := s.round(ctx); ctx.Err() != nil {
				return nil
			} else if err != nil {
				wait = s.failed(err)
			} else {
				s.retry = 0
			}
			s.report(true)
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			case <-s.nudged:
				timer.Stop()
			}
		}
	})
}

// Flush ships every run that has finished and returns once the archive has all, or
// with the first error.
func (s *Shipper) Flush(ctx context.Context) error {
	return s.locked(ctx, func() error {
		for {
			before := s.Status()
			err := s.round(ctx)
			now := s.Status()
			if errors.Is(err, errFull) && now.ShippedRuns > before.ShippedRuns {
				continue // there is room by now
			}
			if err != nil {
				s.failed(err)
			}
			if err != nil || now.PendingRuns <= len(s.conflicts) {
				s.report(true)
				return errors.Join(err, s.conflictError())
			}
		}
	})
}

// conflictError names the runs that cannot be archived.
func (s *Shipper) conflictError() error {
	for id := range s.conflicts {
		return fmt.Errorf("run %s and %d more: %w", id, len(s.conflicts)-1, ErrConflict)
	}
	return nil
}

// locked opens the files of the shipper for one process at a time.
func (s *Shipper) locked(ctx context.Context, do func() error) (err error) {
	dir := filepath.Join(s.opts.Dir, stateName)
	if err := privatedir.Make(dir); err != nil {
		return fmt.Errorf("archive runs: %w", err)
	}
	lock, err := flock.Open(ctx, filepath.Join(dir, lockName))
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("archive runs: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if s.store, err = store.Open(s.opts.Dir, store.Options{}); err != nil {
		return fmt.Errorf("archive runs: %w", err)
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	if s.pending, err = openPending(s.opts.Dir); err != nil {
		return fmt.Errorf("archive runs: %w", err)
	}
	if s.shipped, err = openShipped(s.opts.Dir); err != nil {
		return fmt.Errorf("archive runs: %w", err)
	}
	defer func() { err = errors.Join(err, s.shipped.file.Close()) }()
	s.fullAt, s.scanned = time.Time{}, time.Time{}
	return do()
}

// round pins what has finished, uploads what waits for a while, and applies the
// retention of the archive when that is due.
func (s *Shipper) round(ctx context.Context) error {
	waiting, err := s.pending.list()
	if err != nil {
		return err
	}
	s.count(waiting)
	scanErr := s.scan(ctx)
	if waiting, err = s.pending.list(); err != nil {
		return err
	}
	s.count(waiting)
	if err := s.ship(ctx, waiting); err != nil {
		return err
	}
	if err := s.prune(ctx); err != nil {
		return err
	}
	return scanErr
}

// scan pins the runs that have finished since the last time.
func (s *Shipper) scan(ctx context.Context) error {
	began := time.Now()
	full := began.Sub(s.fullAt) >= fullEvery
	since := s.scanned.Add(-overlap)
	if full {
		since = time.Time{}
	}
	var known []spool.RunID
	var errs []error
	s.setFull(false)
	for id, err := range s.store.Complete(since) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.shipped.has(id) {
			known = append(known, id)
			continue
		}
		if s.pending.has(id) {
			continue
		}
		if st := s.Status(); st.PendingBytes >= s.opts.Pending {
			// The run stays where it is, as long as the retention of this
			// machine lets it.
			s.setFull(true)
			return errors.Join(append(errs, fmt.Errorf("%d bytes wait to be archived: %w", st.PendingBytes, errFull))...)
		}
		size, err := s.pending.add(s.store, id)
		var corrupt *store.CorruptError
		switch {
		case errors.As(err, &corrupt): // others go on; reading the run tells
			if _, known := s.corrupt[id]; !known {
				s.log.Error("a run cannot be archived", "run", id, "err", err)
				s.corrupt[id] = struct{}{}
			}
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, store.ErrIncomplete): // removed meanwhile, or damaged at its end
		case err != nil:
			errs = append(errs, fmt.Errorf("run %s: %w", id, err))
		default:
			s.add(size)
		}
		if err := failpoint.Inject("archive.pinned"); err != nil {
			return err
		}
	}
	s.scanned = began
	if full {
		s.fullAt = began
		errs = append(errs, s.shipped.keep(known))
	}
	return errors.Join(errs...)
}

// errFull means that no more runs may wait.
var errFull = errors.New("no more runs are pinned until some are archived")

// ship uploads runs until all are there, one fails, or it is time to look for others.
func (s *Shipper) ship(ctx context.Context, waiting []*pendingRun) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	next := make(chan *pendingRun)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards first, and what a finished upload changes
	var first error
	for range s.opts.Uploads {
		wg.Go(func() {
			for p := range next {
				err := s.shipOne(ctx, p, &mu)
				if err == nil {
					continue
				}
				mu.Lock()
				if first == nil {
					first = fmt.Errorf("run %s: %w", p.Info.ID, err)
				}
				mu.Unlock()
				cancel(err)
			}
		})
	}
feed:
	for _, p := range waiting {
		mu.Lock()
		at, bad := s.conflicts[p.Info.ID]
		mu.Unlock()
		if bad && time.Since(at) < conflictEvery {
			continue
		}
		if time.Since(began) > scanEvery {
			break
		}
		select {
		case next <- p:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	return first
}

// shipOne uploads one run. A conflict is noted and is no error: others go on.
func (s *Shipper) shipOne(ctx context.Context, p *pendingRun, mu *sync.Mutex) error {
	id := p.Info.ID
	m, err := s.upload(ctx, p)
	mu.Lock()
	defer mu.Unlock()
	if errors.Is(err, ErrConflict) {
		s.conflicts[id] = time.Now()
		s.log.Error("a run cannot be archived", "run", id, "archive", s.objects.String(), "err", err)
		s.setConflicts(len(s.conflicts), fmt.Sprintf("run %s: %v", id, err))
		return nil
	}
	if err != nil {
		return err
	}
	s.retry = 0
	delete(s.conflicts, id)
	s.setConflicts(len(s.conflicts), "")
	if err := s.shipped.add(id); err != nil {
		return err
	}
	if err := failpoint.Inject("archive.shipped"); err != nil {
		return err
	}
	if err := s.pending.remove(id); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.succeeded(p.Size)
	s.log.Debug("archived", "run", id, "bytes", m.Bytes())
	return nil
}
