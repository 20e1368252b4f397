package access

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// account is what a subject uses at the moment, over all its connections.
type account struct {
	mu sync.Mutex
	// live and sandboxes are at least as many as there are: runs that ended are
	// found when a limit is reached.
	live, sandboxes int
	counted         bool // the runs of earlier servers are in them
	starts, answers bucket
	disk            int64
	diskAt          time.Time              // when disk was added up
	used            map[spool.RunID]*usage // of the runs that were added up
}

// bucket limits a rate: it holds at most one interval's worth.
type bucket struct {
	spent float64 // of the rate
	at    time.Time
}

// take takes n of a rate per interval. If there is not enough, it returns how long
// it takes until there is; a larger n than the rate waits for its turn, too.
func (k *bucket) take(now time.Time, n, rate float64, interval time.Duration, debt bool) time.Duration {
	if !k.at.IsZero() {
		k.spent = max(0, k.spent-rate*float64(now.Sub(k.at))/float64(interval))
	}
	k.at = now
	if !debt && k.spent+n > rate {
		return time.Duration((k.spent + n - rate) / rate * float64(interval))
	}
	k.spent += n
	return time.Duration(max(0, k.spent-rate) / rate * float64(interval))
}

func overQuota(what string, limit any, s *Subject, hint string, sentinel error) error {
	return &spool.StartError{Reason: "limit", Hint: hint,
		Err: fmt.Errorf("%w: %s has %s, and its quota is %v", sentinel, s, what, limit)}
}

// reserve counts a start against the quotas. If the start fails, the caller calls
// undo.
func (b *backend) reserve(ctx context.Context, engine string, spec *spool.Spec) (undo func(), err error) {
	if b.account == nil {
		return func() {}, nil
	}
	a, q := b.account, b.subject.Quotas
	a.mu.Lock()
	defer a.mu.Unlock()
	sandbox := engine == python.EngineSandbox
	over := func() bool {
		return q.Live > 0 && a.live >= q.Live || sandbox && q.Sandboxes > 0 && a.sandboxes >= q.Sandboxes
	}
	if (q.Live > 0 || q.Sandboxes > 0) && (!a.counted || over()) {
		if err := b.count(ctx); err != nil {
			return nil, err
		}
	}
	if q.Live > 0 && a.live >= q.Live {
		return nil, overQuota(fmt.Sprintf("%d live runs", a.live), q.Live, b.subject, "wait until one ends, or stop one", spool.ErrBusy)
	}
	if sandbox && over() {
		return nil, overQuota(fmt.Sprintf("%d live sandboxes", a.sandboxes), q.Sandboxes, b.subject, "wait until one ends, or stop one", spool.ErrBusy)
	}
	if q.DiskBytes > 0 {
		left, err := b.diskLeft(ctx)
		if err != nil {
			return nil, err
		}
		if limit := &spec.Limits.OutputBytes; *limit == 0 || *limit > left {
			*limit = left
		}
	}
	if q.StartsPerMinute > 0 {
		if wait := a.starts.take(time.Now(), 1, float64(q.StartsPerMinute), time.Minute, false); wait > 0 {
			return nil, overQuota("started too many runs in the last minute", q.StartsPerMinute, b.subject,
				fmt.Sprintf("try again in %s", wait.Round(100*time.Millisecond)), spool.ErrBusy)
		}
	}
	a.live++
	if sandbox {
		a.sandboxes++
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.live = max(0, a.live-1)
		if sandbox {
			a.sandboxes = max(0, a.sandboxes-1)
		}
	}, nil
}

// count finds out how many runs of the subject are live. Callers hold the lock of
// the account.
func (b *backend) count(ctx context.Context) error {
	live, sandboxes := 0, 0
	for info, err := range b.inner.List(ctx, spool.Filter{Live: true, Labels: map[string]string{LabelSubject: b.subject.Name}}) {
		if err != nil {
			return fmt.Errorf("count live runs: %w", err)
		}
		live++
		if info.Engine == python.EngineSandbox {
			sandboxes++
		}
	}
	b.account.live, b.account.sandboxes, b.account.counted = live, sandboxes, true
	return nil
}

// isPaced reports whether the subject reads at a limited rate.
func (b *backend) isPaced() bool { return b.account != nil && b.subject.Quotas.AnswerRate > 0 }

// pay waits until the subject may get so many bytes.
func (b *backend) pay(ctx context.Context, size int) error {
	if !b.isPaced() {
		return nil
	}
	a := b.account
	a.mu.Lock()
	wait := a.answers.take(time.Now(), float64(size), float64(b.subject.Quotas.AnswerRate), time.Second, true)
	a.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pacedReader reads a blob at the rate of a subject.
type pacedReader struct {
	io.ReadCloser
	ctx     context.Context
	backend *backend
}

// maxPaced is how many bytes are read at once at a limited rate.
const maxPaced = 64 << 10

func (r *pacedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), maxPaced)])
	if perr := r.backend.pay(r.ctx, n); perr != nil {
		return 0, perr
	}
	return n, err
}

// Seek implements [io.Seeker], if the blob can be read from any offset.
func (r *pacedReader) Seek(offset int64, whence int) (int64, error) {
	s, ok := r.ReadCloser.(io.Seeker)
	if !ok {
		return 0, fmt.Errorf("seek in a blob: %w", spool.ErrUnsupported)
	}
	return s.Seek(offset, whence)
}
