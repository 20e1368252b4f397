//go:build amd64 || arm64

package pyodide

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pool keeps processes that wait for a script: where interpreters are forked
// to have one before it is asked for, and where they are not because loading
// takes long.
type pool struct {
	nest  *nest
	ready chan made     // what was started ahead
	queue chan struct{} // has room for as many as may wait for a spare
	stop  context.CancelFunc
	ctx   context.Context
	done  chan struct{}
}

// made is a process, or why there is none.
type made struct {
	p   *process
	err error
}

// loadTime bounds how long a process may take to be ready.
const loadTime = 2 * time.Minute

func newPool(n *nest, spares int) *pool {
	p := &pool{nest: n, ready: make(chan made), queue: make(chan struct{}, spares), done: make(chan struct{})}
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
				pr, err := p.start()
				select {
				case p.ready <- made{pr, err}:
				case <-p.nest.gone:
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
	do := doStart
	if p.nest.forks() {
		do = doFork
	}
	pr, err := p.nest.begin(do, 0)
	if err != nil {
		return nil, err
	}
	if do == doFork {
		err = newReplies(pr.conn).send([]byte(`{"rehearse":true}`), 0)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(p.ctx, loadTime)
		defer cancel()
		_, err = pr.ready(ctx)
	}
	if err != nil {
		pr.end()
		return nil, err
	}
	return pr, nil
}

// spare returns a process that is ready or will be soon, unless others wait for
// those already: then another one is made sooner.
func (p *pool) spare(ctx context.Context) *process {
	select {
	case p.queue <- struct{}{}:
		defer func() { <-p.queue }()
	default:
		return nil
	}
	pr, err := p.get(ctx)
	if err != nil {
		return nil // a new one says why
	}
	return pr
}

// get waits for a process that is ready.
func (p *pool) get(ctx context.Context) (*process, error) {
	select {
	case m := <-p.ready:
		return m.p, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.nest.gone:
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
func (pr *process) ready(ctx context.Context) (*readyInfo, error) {
	stop := context.AfterFunc(ctx, func() { _ = pr.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	info, err := rehearsal(pr.conn, pr.frames)
	var failed *failedError
	switch {
	case err == nil, errors.As(err, &failed), errors.Is(err, ErrProtocol):
		return info, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	select {
	case <-pr.exited:
		return nil, fmt.Errorf("it ended before it was ready: %s", pr.exit.ending())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
