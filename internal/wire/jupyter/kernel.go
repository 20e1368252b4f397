// Package jupyter is a kernel for the front ends of Jupyter, with a run of Spool behind
// it. The run is the kernel: it has the state and the log. What is here only speaks the
// messaging protocol of Jupyter, and may end and begin again at any time.
//
// Output goes from the log to the front ends. While no front end is connected it waits in
// the log, so that a front end that comes back gets all of it.
package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/zmtp"
)

// Options are the parts of a kernel.
type Options struct {
	Backend    spool.Backend
	Run        *spool.Run
	Connection *Connection
	Version    string // of Spool
	Logger     *slog.Logger
	// Resume has requests that repeat the first cells of the run answered from its
	// log: a program that runs a notebook from the top goes on where another one was
	// cut off.
	Resume bool
	// Note is text for the first person who runs a cell.
	Note string
	// Gone is closed when the process of the front end has ended. It may be nil.
	Gone <-chan struct{}
}

const (
	// stopIn is how long a run that is shut down may take to end before it is killed.
	// The front end kills the kernel after five seconds.
	stopIn = 2 * time.Second
	// leavePoll is how often a kernel whose front end is gone looks whether it still
	// has something to do.
	leavePoll = 200 * time.Millisecond
	// drainIn is how long the answer to a request waits for what it caused to be sent.
	drainIn = time.Second
)

// kernel is the state of one that is served.
type kernel struct {
	Options
	codec *codec
	book  *book
	queue *queue

	shell, control, stdin, iopub, heartbeat *zmtp.Socket

	over chan struct{} // closed by the first shutdown
	end  sync.Once
	work sync.WaitGroup

	// The goroutine that executes requests owns these.
	resume  bool
	resumed int // cells that were answered from the log

	mu        sync.Mutex
	owners    map[string]*request        // cells that front ends wait for, by the id of their input
	headers   map[string]json.RawMessage // of requests whose cells were not published
	asked     map[string]question        // by the identity of the front end
	busy      json.RawMessage            // the parent of the cell that runs
	published spool.Seq
	progress  chan struct{} // closed when published grows; nil without waiters
}

// question is an ask that a front end has to answer.
type question struct {
	ask    spool.Seq
	secret bool
}

// Serve serves a kernel until a front end shuts it down, its run ends, or its front end
// is gone and nothing is left to do. Only a shutdown ends the run.
func Serve(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := &kernel{
		Options: o, codec: newCodec(o.Connection.Key), book: newBook(), queue: newQueue(), over: make(chan struct{}),
		owners: make(map[string]*request), headers: make(map[string]json.RawMessage), asked: make(map[string]question), resume: o.Resume,
	}
	info, err := o.Run.Info(ctx)
	if err != nil {
		return err
	}
	k.published = info.Last // before this kernel
	if err := k.bind(ctx); err != nil {
		return err
	}
	defer k.work.Wait()
	defer k.close()
	defer cancel()
	for _, s := range k.sockets() {
		k.work.Go(func() {
			if err := s.Serve(); err != nil {
				k.Logger.Error("a socket failed", "error", err)
			}
		})
	}
	failed := make(chan error, 1)
	ran := make(chan struct{})
	k.work.Go(func() {
		if err := k.book.keep(ctx, k.Run, func(e *spool.Event, c *cell) { k.ask(ctx, e, c) }); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	k.work.Go(func() {
		defer close(ran)
		if k.book.reach(ctx, info.Last) == nil {
			k.execute(ctx)
		}
	})
	k.work.Go(func() {
		if k.book.reach(ctx, info.Last) == nil {
			k.follow(ctx, info.Last)
		}
	})
	select {
	case <-k.over:
	case <-ran:
	case err = <-failed:
	case <-k.left(ctx):
		k.Logger.Info("the front end is gone; the run goes on", "run", k.Run.ID())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return err
}

// left is closed when the front end is gone and nothing is left to do.
func (k *kernel) left(ctx context.Context) <-chan struct{} {
	if k.Gone == nil {
		return nil
	}
	left := make(chan struct{})
	k.work.Go(func() {
		select {
		case <-k.Gone:
		case <-ctx.Done():
			return
		}
		poll := time.NewTicker(leavePoll)
		defer poll.Stop()
		for !k.queue.idle() || k.iopub.Subscribers() > 0 {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return
			}
		}
		close(left)
	})
	return left
}

// bind binds the sockets that the connection file names.
func (k *kernel) bind(ctx context.Context) (err error) {
	for _, s := range []struct {
		to   **zmtp.Socket
		kind zmtp.Type
		port int
	}{
		{&k.shell, zmtp.Router, k.Connection.Shell},
		{&k.control, zmtp.Router, k.Connection.Control},
		{&k.stdin, zmtp.Router, k.Connection.Stdin},
		{&k.iopub, zmtp.Pub, k.Connection.IOPub},
		{&k.heartbeat, zmtp.Rep, k.Connection.Heartbeat},
	} {
		network, address := k.Connection.address(s.port)
		if *s.to, err = zmtp.Listen(s.kind, network, address); err != nil {
			k.close()
			return err
		}
	}
	k.shell.Receive = func(p *zmtp.Peer, m zmtp.Message) { k.receive(ctx, k.shell, p, m) }
	k.control.Receive = func(p *zmtp.Peer, m zmtp.Message) { k.receive(ctx, k.control, p, m) }
	k.stdin.Receive = func(p *zmtp.Peer, m zmtp.Message) { k.input(ctx, p, m) }
	k.heartbeat.Receive = func(p *zmtp.Peer, m zmtp.Message) { p.Send(m) }
	k.iopub.Subscribed = func(p *zmtp.Peer, topic string) {
		if m, err := k.codec.encode("iopub_welcome", nil, map[string]string{"subscription": topic}, []byte(topic)); err == nil {
			p.Send(m)
		}
	}
	return nil
}

func (k *kernel) sockets() []*zmtp.Socket {
	return []*zmtp.Socket{k.shell, k.control, k.stdin, k.iopub, k.heartbeat}
}

func (k *kernel) close() {
	for _, s := range k.sockets() {
		if s != nil {
			s.Close()
		}
	}
}

// say publishes what is only worth saying now.
func (k *kernel) say(kind string, parent json.RawMessage, content any) int {
	m, err := k.codec.encode(kind, parent, content, []byte("kernel."+kind))
	if err != nil {
		k.Logger.Error("encode a message", "error", err)
		return 1
	}
	return k.iopub.Publish(m)
}

// publish publishes a message once a front end listens.
func (k *kernel) publish(ctx context.Context, kind string, parent json.RawMessage, content any) error {
	for {
		if err := k.iopub.WaitSubscriber(ctx); err != nil {
			return err
		}
		if k.say(kind, parent, content) > 0 {
			return nil
		}
	}
}

// status is the content of a status message.
func status(state string) any { return map[string]string{"execution_state": state} }

// reply answers a request.
func (k *kernel) reply(s *zmtp.Socket, to *zmtp.Peer, m *message, kind string, content any) {
	answer, err := k.codec.encode(kind, m.raw, content)
	if err != nil {
		k.Logger.Error("encode an answer", "error", err)
		return
	}
	k.iopub.Drain(drainIn)
	s.Reply(to, answer)
}

// shutDown ends the run, and then the kernel.
func (k *kernel) shutDown(ctx context.Context) {
	if err := k.Run.Stop(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
		k.Logger.Error("stop the run", "error", err)
	}
	if !k.book.ended(ctx, stopIn) {
		if err := k.Run.Kill(ctx); err != nil && !errors.Is(err, spool.ErrEnded) {
			k.Logger.Error("kill the run", "error", err)
		}
		k.book.ended(ctx, stopIn)
	}
}
