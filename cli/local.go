package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/engine/process"
	"github.com/spool-run/spool/eventlog"
	"github.com/spool-run/spool/host"
	"github.com/spool-run/spool/internal/launch"
)

// How long to try when the host of a live run does not answer.
const (
	answerIn   = 2 * time.Second // one connection, or one question in a list
	giveUpIn   = 5 * time.Second // altogether
	askAgainIn = 20 * time.Millisecond
)

// local is the backend of this machine: a host on a state directory, and the
// other hosts that share the directory. A finished run is read from the
// directory; a live one belongs to the process that started it and is reached
// through that process.
type local struct {
	opts   host.Options
	host   *host.Host
	socket *socket // nil if this process starts nothing

	mu     sync.Mutex
	peers  map[string]*client.Client // by owner
	closed bool
}

var _ backend = (*local)(nil)

// engines are those of this machine.
func engines(limits spool.Limits) map[string]host.NewEngine {
	return map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) {
			return process.New(process.Options{Owner: owner, Limits: limits})
		},
	}
}

// openLocal opens the state directory. The socket, if there is one, is closed
// with it.
func openLocal(o host.Options, s *socket) (*local, error) {
	o.Sweep = func(owner string) error {
		_, err := launch.SweepOwner(owner)
		if dead, lookErr := host.LookupOwner(o.Dir, owner); lookErr == nil {
			err = errors.Join(err, removeSocket(dead.Address))
		}
		return err
	}
	h, err := host.Open(o)
	if err != nil {
		return nil, err
	}
	return &local{opts: o, host: h, socket: s, peers: make(map[string]*client.Client)}, nil
}

// openServing opens the state directory for a process that starts runs: others
// reach them through a socket.
func openServing(o host.Options, log *slog.Logger) (*local, error) {
	s, err := listenSocket(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Address = s.address()
	l, err := openLocal(o, s)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.serve(l.host, log)
	return l, nil
}

// Close kills what this process started and lets go of everything.
func (l *local) Close() error {
	l.mu.Lock()
	l.closed = true
	peers := l.peers
	l.peers = nil
	l.mu.Unlock()
	var errs []error
	for _, c := range peers {
		errs = append(errs, c.Close())
	}
	if l.socket != nil {
		errs = append(errs, l.socket.close())
	}
	return errors.Join(append(errs, l.host.Close())...)
}

// peer returns a connection to another host of the directory.
func (l *local) peer(ctx context.Context, owner string) (*client.Client, error) {
	l.mu.Lock()
	c, closed := l.peers[owner], l.closed
	l.mu.Unlock()
	if closed {
		return nil, spool.ErrClosed
	}
	if c != nil {
		return c, nil
	}
	o, err := host.LookupOwner(l.opts.Dir, owner)
	if err != nil {
		return nil, err
	}
	if o.Address == "" {
		return nil, fmt.Errorf("host %s (pid %d) has no address: %w", o.ID, o.Pid, spool.ErrUnsupported)
	}
	c, err = client.Dial(ctx, o.Address, client.Options{Reconnect: -1, Dial: answerIn})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	other, closed := l.peers[owner], l.closed
	if other == nil && !closed {
		l.peers[owner] = c
	}
	l.mu.Unlock()
	switch {
	case closed:
		return nil, errors.Join(spool.ErrClosed, c.Close())
	case other != nil: // somebody was faster
		return other, c.Close()
	}
	return c, nil
}

// forget drops the connection to a host that was lost.
func (l *local) forget(b spool.Backend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner, c := range l.peers {
		if spool.Backend(c) == b {
			delete(l.peers, owner)
			_ = c.Close() // it is lost already
		}
	}
}

// unreachableError says that a live run's host does not answer.
type unreachableError struct {
	run   spool.RunID
	owner string
	err   error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("run %s: its host %s does not answer: %v", e.run, e.owner, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// route returns the backend to ask about a run: our own host, or the one that
// the run lives in. A host that does not answer either died, which makes its
// runs ours to finish, or is about to leave its runs finished.
func (l *local) route(ctx context.Context, id spool.RunID) (spool.Backend, error) {
	giveUp := time.Now().Add(giveUpIn)
	for try := 0; ; try++ {
		info, err := l.host.Stat(ctx, id)
		if err != nil {
			return nil, err
		}
		if info.State == spool.StateClosed || info.Owner == l.host.ID() {
			return l.host, nil
		}
		c, err := l.peer(ctx, info.Owner)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		gone := errors.Is(err, fs.ErrNotExist) && try > 1 // looked twice, with the run unfinished
		if gone || errors.Is(err, spool.ErrUnsupported) || time.Now().After(giveUp) {
			return nil, &unreachableError{id, info.Owner, err}
		}
		if err := l.settle(); err != nil {
			return nil, err
		}
		select {
		case <-time.After(askAgainIn):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// settle finishes the runs of hosts that died since we opened the directory.
func (l *local) settle() error {
	o := l.opts
	o.Engines = nil
	h, err := host.Open(o)
	if err != nil {
		return err
	}
	return h.Close()
}

// errLost says that another host went away before it answered.
var errLost = errors.New("the host of the run went away")

func isLost(err error) bool {
	var lost *client.DisconnectedError
	return errors.Is(err, errLost) || errors.Is(err, spool.ErrClosed) || errors.As(err, &lost)
}

// at asks the right backend, and once more if that one went away.
func (l *local) at(ctx context.Context, id spool.RunID, ask func(spool.Backend) error) error {
	for again := false; ; again = true {
		b, err := l.route(ctx, id)
		if err != nil {
			return err
		}
		err = ask(b)
		if again || b == spool.Backend(l.host) || !isLost(err) || ctx.Err() != nil {
			return err
		}
		l.forget(b)
	}
}

// Start implements [spool.Backend].
func (l *local) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	return l.host.Start(ctx, spec)
}

// Stat implements [spool.Backend]. A run whose host does not answer is
// described as the directory knows it.
func (l *local) Stat(ctx context.Context, id spool.RunID) (info spool.Info, err error) {
	err = l.at(ctx, id, func(b spool.Backend) (err error) {
		info, err = b.Stat(ctx, id)
		return err
	})
	var unreachable *unreachableError
	if errors.As(err, &unreachable) {
		return l.host.Stat(ctx, id)
	}
	return info, err
}

// List implements [spool.Backend].
func (l *local) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for info, err := range l.host.List(ctx, f) {
			if err == nil && info.State != spool.StateClosed && info.Owner != l.host.ID() {
				info = l.current(ctx, info)
				if !f.Match(info) {
					continue
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// current asks the host of a live run about it, but not for long: a list must
// not hang on one.
func (l *local) current(ctx context.Context, stored spool.Info) spool.Info {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	c, err := l.peer(ctx, stored.Owner)
	if err != nil {
		return stored
	}
	info, err := c.Stat(ctx, stored.ID)
	if err != nil {
		return stored
	}
	return info
}

// Read implements [spool.Backend]. Of a run whose host does not answer, what
// the directory has is returned.
func (l *local) Read(ctx context.Context, id spool.RunID, q spool.Query) (page spool.Page, err error) {
	err = l.at(ctx, id, func(b spool.Backend) (err error) {
		page, err = b.Read(ctx, id, q)
		if err == nil && page.Failure != "" {
			err = fmt.Errorf("%w: %s", errLost, page.Failure)
		}
		return err
	})
	var unreachable *unreachableError
	if errors.As(err, &unreachable) && q.Wait == 0 {
		return l.host.Read(ctx, id, q)
	}
	return page, err
}

// ReadRecords is the host's, for the server: it spares taking events apart only
// to put them together again. The runs of other hosts are read as events.
func (l *local) ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	b, err := l.route(ctx, id)
	if err != nil {
		return dst, spool.Page{}, err
	}
	if h, ok := b.(*host.Host); ok {
		return h.ReadRecords(ctx, id, q, dst)
	}
	page, err := l.Read(ctx, id, q)
	for i := 0; err == nil && i < len(page.Events); i++ {
		dst, err = eventlog.AppendRecord(dst, &page.Events[i])
	}
	page.Events = nil
	return dst, page, err
}

// Follow implements [spool.Backend]. When the run's host leaves, what it had
// not sent yet is read from the directory.
func (l *local) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for {
			b, err := l.route(ctx, id)
			if err != nil {
				yield(spool.Event{}, err)
				return
			}
			lost := false
			for e, err := range b.Follow(ctx, id, after) {
				// An event without a seq is not in the log: the
				// client made it because its connection is gone.
				if b != spool.Backend(l.host) && ctx.Err() == nil && (err == nil && e.Seq == 0 || isLost(err)) {
					lost = true
					break
				}
				if !yield(e, err) || err != nil {
					return
				}
				after = e.Seq
			}
			if !lost {
				return
			}
			l.forget(b)
		}
	}
}

// Send implements [spool.Backend].
func (l *local) Send(ctx context.Context, id spool.RunID, in spool.Input) (receipt spool.Receipt, err error) {
	err = l.at(ctx, id, func(b spool.Backend) (err error) {
		receipt, err = b.Send(ctx, id, in)
		return err
	})
	return receipt, err
}

// Control implements [spool.Backend].
func (l *local) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	return l.at(ctx, id, func(b spool.Backend) error { return b.Control(ctx, id, c) })
}

// Blob implements [spool.Backend]: blobs are in the directory, whoever put
// them there.
func (l *local) Blob(ctx context.Context, d spool.Digest) (io.ReadCloser, error) {
	return l.host.Blob(ctx, d)
}
