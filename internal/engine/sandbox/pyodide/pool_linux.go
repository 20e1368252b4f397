//go:build amd64 || arm64

package pyodide

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// pool keeps processes that wait for a script: where interpreters are forked
// to have one sooner than a fork takes, and where they are not because loading
// takes long.
type pool struct {
	group *group
	ready chan made    // what was started ahead
	taken atomic.Int64 // when a process was last taken, in Unix nanoseconds
	stop  context.CancelFunc
	ctx   context.Context
	done  chan struct{}
}

// made is a process, or why there is none.
type made struct {
	p   *process
	err error
}

// forkTime is how long a process may take to be ready if its distribution was
// loaded before.
const forkTime = 20 * time.Second

// Where more interpreters live than crowd, the pool makes a spare only if no process
// was taken for restTime.
const restTime = 20 * time.Millisecond

var crowd = 2 * runtime.NumCPU()

// newPool returns a pool that keeps as many spares; it may be none if the group
// forks.
func newPool(n *group, spares int) *pool {
	if spares < 0 {
		spares = 0
	}
	if !n.forks() {
		spares = max(spares, 1)
	}
	p := &pool{group: n, ready: make(chan made), done: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	go p.fill(spares)
	return p
}

// fill starts processes, as many at once as may wait, each when another is
// taken.
func (p *pool) fill(spares int) {
	defer close(p.done)
	var wg sync.WaitGroup
	for range spares {
		wg.Go(func() {
			for p.ctx.Err() == nil {
				if p.group.forks() && p.group.living() > crowd {
					p.rest()
				}
				pr, err := p.start()
				select {
				case p.ready <- made{pr, err}:
				case <-p.group.gone:
					if pr != nil {
						pr.end()
					}
					return
				case <-p.ctx.Done():
					if pr != nil {
						pr.end()
					}
				}
			}
		})
	}
	wg.Wait()
}

func (p *pool) start() (*process, error) {
	do, limit := doStart, p.group.loadTime
	if p.group.forks() {
		do, limit = doFork, forkTime
	}
	pr, err := p.group.begin(do, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	if do == doFork { // the message is small, so it does not have to wait
		err = newReplies(pr.conn).send([]byte(`{"rehearse":true,"ready":true}`))
	}
	if err == nil {
		var info *readyInfo
		if info, err = pr.ready(ctx); do == doStart {
			pr.info = info
		}
	}
	if err != nil {
		pr.end()
		return nil, err
	}
	return pr, nil
}

// spare returns a process that is ready, if there is one.
func (p *pool) spare() *process {
	p.taken.Store(time.Now().UnixNano())
	select {
	case m := <-p.ready:
		return m.p // or nothing: a new one says why
	default:
		return nil
	}
}

// rest waits until no process was taken for a while. Making a spare takes more
// work than forking on demand, and would slow down running scripts while all
// processors are busy.
func (p *pool) rest() {
	for {
		left := restTime - time.Since(time.Unix(0, p.taken.Load()))
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-p.group.gone:
			timer.Stop()
			return
		case <-p.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// get waits for a process that is ready.
func (p *pool) get(ctx context.Context) (*process, error) {
	select {
	case m := <-p.ready:
		return m.p, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.group.gone:
		return nil, errGone
	case <-p.ctx.Done():
		return nil, errGone
	}
}

// close ends those that wait. There may be no pool at all.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.stop()
	<-p.done
}

// ready waits until a started process has loaded its distribution.
func (p *process) ready(ctx context.Context) (*readyInfo, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	info, err := rehearsal(p.conn, p.frames)
	var failed *failedError
	switch {
	case err == nil, errors.As(err, &failed), errors.Is(err, ErrProtocol):
		return info, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	select {
	case <-p.exited:
		return nil, fmt.Errorf("it ended before it was ready: %s", p.exit.ending())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
