package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/pause"
)

// native is a client of Spool's own methods, through package client.
type native struct {
	trial *trial
	name  string
	index int
	wire  *netcut.Proxy
	ready chan struct{} // closed once client is set
	conn  *client.Client
}

// reconnectFor is longer than any fault.
const reconnectFor = 5 * time.Minute

func newNative(t *trial, index int) (*native, error) {
	wire, err := netcut.NewProxy(t.addr)
	if err != nil {
		return nil, err
	}
	return &native{trial: t, index: index, name: fmt.Sprintf("spool client %d", index), wire: wire, ready: make(chan struct{})}, nil
}

func (n *native) proxy() *netcut.Proxy { return n.wire }
func (n *native) label() string        { return n.name }

// serve connects for the first time; later the client reconnects by itself.
func (n *native) serve(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := client.Dial(ctx, "ws://"+n.wire.Addr(), client.Options{Token: n.trial.opts.Token, Reconnect: reconnectFor})
		if err != nil {
			_ = pause.For(ctx, retryEvery)
			continue
		}
		n.conn = c
		close(n.ready)
		<-ctx.Done()
		_ = c.Close() // never fails
	}
}

// settled sends a request, which waits for a connection.
func (n *native) settled(ctx context.Context) bool {
	select {
	case <-n.ready:
		_, err := n.conn.Stat(ctx, spool.RunID(n.trial.mark)) // no run has this id
		return err != nil && ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// runWorker runs one worker on the server, from the start to the replay.
func (n *native) runWorker(ctx context.Context, r *run) {
	select {
	case <-n.ready:
	case <-ctx.Done():
		return
	}
	r.id = fmt.Sprintf("%sr%d", n.trial.mark, r.plan.Run)
	r.mu.Lock()
	r.asked = n
	r.mu.Unlock()
	spec := spool.Spec{
		ID: spool.RunID(r.id), Argv: r.plan.argv(n.trial.worker), Cwd: n.trial.dir, Env: workerEnv, Stdin: r.plan.Shape == Echo,
	}
	if r.plan.TTY {
		spec.TTY = &spool.Size{Rows: 24, Cols: 80}
	}
	handle, err := spool.Start(ctx, n.conn, spec)
	if err != nil {
		if ctx.Err() == nil {
			n.trial.refused(ctx, r, err)
		}
		return
	}
	followed := make(chan struct{})
	n.trial.wg.Go(func() {
		defer close(followed)
		n.follow(ctx, r, handle)
	})
	err = n.exercise(ctx, r, handle)
	if err != nil {
		if ctx.Err() == nil {
			r.violate(NeverEnded, "%v; the last event is %d", err, r.last())
			_ = handle.Kill(ctx) // the history shows the result
		}
		return
	}
	<-followed
	again := newHistory(&r.plan)
	for e, err := range handle.Events(ctx, 0) {
		if err != nil {
			if ctx.Err() == nil {
				r.violate(BadReplay, "after event %d: %v", again.last, err)
			}
			return
		}
		again.add(fromLog(&e, r.plan.TTY))
	}
	r.compare(again, "following from the beginning")
}

// follow adds the events as they arrive.
func (n *native) follow(ctx context.Context, r *run, handle *spool.Run) {
	for e, err := range handle.Events(ctx, 0) {
		if err != nil {
			if ctx.Err() == nil {
				r.violate(Lost, "follow after event %d: %v", r.last(), err)
			}
			return
		}
		if e.Seq == 0 { // not in the log: the client gave up
			o, _ := e.Outcome()
			r.violate(Lost, "the client gave up after event %d: %s", r.last(), o.Reason)
			return
		}
		r.take(func(in *inbox) {
			if o, ok := e.Outcome(); ok && o.Kind != spool.Exited {
				in.failure = o.String()
			}
			in.hist.add(fromLog(&e, r.plan.TTY))
		})
	}
}

// exercise sends the input or the kill that the shape of the worker needs,
// until the worker is closed.
func (n *native) exercise(ctx context.Context, r *run, handle *spool.Run) error {
	patience := n.trial.opts.Hang
	switch r.plan.Shape {
	case Echo:
		if err := r.wait(ctx, patience, func(h *history) bool { return h.last > 0 }); err != nil {
			return err
		}
		for i := uint32(1); int(i) <= r.plan.Records; i++ {
			_, err := handle.Send(ctx, spool.Input{ID: fmt.Sprint(i), Kind: spool.InputStdin, Bytes: r.plan.input(i)})
			if err != nil {
				if errors.Is(err, spool.ErrInputClosed) || errors.Is(err, spool.ErrEnded) || n.trial.excused(r) || r.killed.Load() {
					break // the checks at the end decide whether that was correct
				}
				return fmt.Errorf("send %d: %w", i, err)
			}
			r.mu.Lock()
			r.acked = i
			r.mu.Unlock()
		}
	case Endless:
		if err := r.wait(ctx, patience, r.plan.enough); err != nil {
			return err
		}
		r.killed.Store(true)
		if err := handle.Kill(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
			return fmt.Errorf("kill: %w", err)
		}
	}
	return r.wait(ctx, patience, nil)
}
