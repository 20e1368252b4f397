//go:build amd64 || arm64

package pyodide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
)

// Backend is the Pyodide back end. It keeps, for each setup, the processes
// that interpreters come from, as long as contexts use them and a while longer.
type Backend struct {
	opts Options

	mu      sync.Mutex
	closed  bool
	setups  map[string]*setup
	walls   map[bool]guest.Wall // by whether isolation none was asked for
	pattern *isolate.Cell       // has the wall of all cells; nil until it is needed
	wg      sync.WaitGroup      // of what the setups do; added to only while not closed
}

var _ guest.Backend = (*Backend)(nil)

// New returns a back end. It starts nothing until it is used, and must be
// closed.
func New(o Options) *Backend {
	o.Self = cmp.Or(o.Self, "/proc/self/exe")
	o.KeepIdle = cmp.Or(o.KeepIdle, DefaultKeepIdle)
	o.LoadTime = cmp.Or(o.LoadTime, DefaultLoadTime)
	o.Spares = cmp.Or(o.Spares, DefaultSpares)
	return &Backend{opts: o, setups: make(map[string]*setup)}
}

// Name returns [Name].
func (b *Backend) Name() string { return Name }

// setup returns what is known of a setup.
func (b *Backend) setup(s guest.Setup) (*setup, error) {
	s.Progress = nil
	slices.Sort(s.Packages)
	s.Packages = slices.Compact(s.Packages)
	key := fmt.Sprintf("%q %d", []string{s.Dist, s.Wheels, s.Node, strings.Join(s.Packages, "\x00"), s.CacheDir, string(s.Isolation)}, s.JSHeap)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	u := b.setups[key]
	if u == nil {
		u = &setup{backend: b, asked: s, turn: make(chan struct{}, 1)}
		b.setups[key] = u
	}
	return u, nil
}

var errClosed = errors.New("the pyodide back end is closed")

// Prepare prepares what contexts of a setup share.
func (b *Backend) Prepare(ctx context.Context, s guest.Setup) (guest.Prewarm, error) {
	s.Packages = slices.Clone(s.Packages)
	u, err := b.setup(s)
	if err != nil {
		return guest.Prewarm{}, err
	}
	n, prewarm, err := u.acquire(ctx, s.Progress)
	if err != nil {
		return guest.Prewarm{}, err
	}
	u.release(n)
	return prewarm, nil
}

// Open returns a new context.
func (b *Backend) Open(ctx context.Context, o guest.Options) (guest.Context, error) {
	if o.Fuel != 0 {
		return nil, unavailable("leave fuel out, or use the embedded back end", errors.New("fuel is not counted in Node"))
	}
	o.Packages = slices.Clone(o.Packages)
	o.Memory = cmp.Or(o.Memory, guest.DefaultMemory)
	o.OpenFiles = cmp.Or(o.OpenFiles, guest.DefaultOpenFiles)
	u, err := b.setup(o.Setup)
	if err != nil {
		return nil, err
	}
	n, _, err := u.acquire(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	return &box{setup: u, group: n, options: o}, nil
}

// Close ends all that the back end started, and waits for it.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	left := b.setups
	b.setups = nil
	b.mu.Unlock()
	for _, u := range left {
		u.close()
	}
	b.wg.Wait()
	return nil
}

// begin counts something that Close waits for.
func (b *Backend) begin(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// setup is what contexts of one setup share.
type setup struct {
	backend *Backend
	asked   guest.Setup
	turn    chan struct{} // held while preparing

	mu     sync.Mutex
	group  *group // nil if there is none
	pool   *pool  // of the group, if it does not fork
	done   guest.Prewarm
	users  int // contexts and preparations
	idle   *time.Timer
	closed bool
}

// acquire returns the group of the setup and starts it if there is none. The
// caller must release it.
func (u *setup) acquire(ctx context.Context, progress func(guest.Progress)) (*group, guest.Prewarm, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return nil, guest.Prewarm{}, ctx.Err()
	}
	if n, p, ok := u.take(); ok {
		return n, p, nil
	}
	if progress == nil {
		progress = func(guest.Progress) {}
	}
	n, p, err := u.prepare(ctx, progress)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		n.close()
		return nil, guest.Prewarm{}, errClosed
	}
	old, oldPool := u.group, u.pool
	u.group, u.users, u.done = n, 1, p
	u.pool = newPool(n, u.backend.opts.Spares)
	u.done.Executed, u.done.Reason, u.done.Duration = false, guest.ReasonCached, 0
	u.mu.Unlock()
	if old != nil {
		oldPool.close()
		old.close()
	}
	return n, p, nil
}

// take returns the group if there is one that works.
func (u *setup) take() (*group, guest.Prewarm, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.group == nil || u.group.failure() != nil {
		return nil, guest.Prewarm{}, false
	}
	u.users++
	if u.idle != nil {
		u.idle.Stop()
		u.idle = nil
	}
	return u.group, u.done, true
}

// release gives a group back. A group without users ends after a while.
func (u *setup) release(n *group) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.group != n {
		return // it has been replaced, and ends with the last of its processes
	}
	if u.users--; u.users > 0 || u.closed {
		return
	}
	u.idle = time.AfterFunc(u.backend.opts.KeepIdle, func() {
		u.backend.begin(func() { u.expire(n) })
	})
}

func (u *setup) expire(n *group) {
	u.mu.Lock()
	if u.group != n || u.users > 0 || u.closed {
		u.mu.Unlock()
		return
	}
	pool := u.pool
	u.group, u.pool, u.idle = nil, nil, nil
	u.mu.Unlock()
	pool.close()
	n.close()
}

func (u *setup) close() {
	u.mu.Lock()
	n, pool := u.group, u.pool
	u.group, u.pool, u.closed = nil, nil, true
	if u.idle != nil {
		u.idle.Stop()
	}
	u.mu.Unlock()
	if n != nil {
		pool.close()
		n.close()
	}
}

// process returns one that waits for its first script.
func (u *setup) process(ctx context.Context, n *group, memory int64) (*process, error) {
	u.mu.Lock()
	pool := u.pool
	if u.group != n {
		pool = nil
	}
	u.mu.Unlock()
	if pool == nil {
		return nil, errGone
	}
	var p *process
	if n.forks() {
		if p = pool.spare(); p == nil {
			return n.begin(doFork, memory+u.slack())
		}
	} else {
		var err error
		if p, err = pool.get(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.order(order{Do: doSeal, ID: p.id, Memory: memory + u.slack()}, -1); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// heapSlack is the memory that a process may have beyond what its interpreter
// may: JavaScript's own, and what the system needs to hand out memory.
const heapSlack = 64 << 20

// slack is heapSlack, and more if JavaScript was given more than it has by
// default.
func (u *setup) slack() int64 { return heapSlack + max(0, u.asked.JSHeap-heapMB<<20) }
