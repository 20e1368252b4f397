// Package keeper keeps runs alive beside the servers and commands that want
// them. A keeper is one small process per state directory and build: it owns
// the children, their streams and the appending to their logs. Everyone else
// is a reader: what happened is read from the log's files, and the keeper says
// over a unix socket that there is more.
//
// So a server may be killed, restarted or replaced at any instant: children
// run on, every byte they write is logged, and exit codes are true. A keeper
// starts when first needed and ends when it is idle.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/crew"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// DefaultIdle is how long a keeper with nothing alive and nobody connected
// stays.
const DefaultIdle = 10 * time.Second

// lingerFor is how long the news of an exit waits for that of the end.
const lingerFor = 300 * time.Microsecond

// spareFiles are ready for the next runs, which makes up for the way here.
const spareFiles = 16

// Bounds of what one connection may have under way.
const (
	maxInFlight      = 16384
	maxInFlightBytes = 64 << 20
)

// ServeOptions configure a keeper.
type ServeOptions struct {
	Host  host.Options // its Dir, Engines, Sweep and policies
	Build string       // names the binary; a server of another build starts its own keeper
	Idle  time.Duration
	// Ready is called once others can connect.
	Ready func()
}

// server is a running keeper.
type server struct {
	opts ServeOptions
	host *host.Host
	ctx  context.Context

	worked  atomic.Bool // something was started since memory was given back
	tellers crew.Crew   // of first news that cannot be told at once

	mu     sync.Mutex
	conns  int
	leases map[spool.Label]*lease
	ending bool
	poke   chan struct{} // has room for one; filled when the keeper may have become idle
}

// Serve is the life of a keeper. It returns once it was idle for long enough,
// or ctx ended, which ends its runs.
func Serve(ctx context.Context, o ServeOptions) (err error) {
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	dir := o.Host.Dir
	path, err := socketPath(dir)
	if err != nil {
		return err
	}
	ln, err := listen(path)
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	o.Host.Address, o.Host.Build = addressPrefix+path, o.Build
	o.Host.Forget, o.Host.Spares = inlineBytes, spareFiles
	h, err := host.Open(o.Host)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{opts: o, host: h, ctx: ctx, leases: make(map[spool.Label]*lease), poke: make(chan struct{}, 1)}
	if err := h.Register(); err != nil {
		return errors.Join(err, ln.Close(), h.Close())
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.accept(ln, &wg) })
	if o.Ready != nil {
		o.Ready()
	}
	s.untilIdle()
	// Whoever looks for a keeper now finds none, or is told to look again.
	err = errors.Join(ln.Close(), h.Unregister())
	cancel()
	wg.Wait()
	s.endLeases()
	err = errors.Join(err, h.Close(), removeSocket(path))
	s.tellers.Wait() // after the last run
	return err
}

// accept serves connections until the listener is closed.
func (s *server) accept(ln net.Listener, wg *sync.WaitGroup) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: those who connect wait.
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if err := checkPeer(c); err != nil {
			_ = c.Close()
			continue
		}
		wg.Go(func() { s.serve(c) })
	}
}

// conn is one connected server or command.
type conn struct {
	server    *server
	transport *transport
	ctx       context.Context
	lanes     *rpc.Lanes
}

func (s *server) serve(nc net.Conn) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.conns++
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(s.ctx)
	c := &conn{server: s, ctx: ctx, lanes: rpc.NewLanes(maxInFlight, maxInFlightBytes)}
	c.talk(nc) // the end of a connection is nobody's failure
	cancel()
	c.lanes.Wait()
	s.mu.Lock()
	s.conns--
	s.mu.Unlock()
	s.dropLeases(c)
	s.look()
}

// talk serves a connection until it ends.
func (c *conn) talk(nc net.Conn) {
	stop := context.AfterFunc(c.ctx, func() { _ = nc.Close() })
	t, err := acceptTransport(nc)
	stop()
	if err != nil {
		_ = nc.Close()
		return
	}
	defer context.AfterFunc(c.ctx, func() { _ = t.close() })()
	c.transport = t
	t.serve(c.ctx, c)
}

// look has the keeper check whether it is idle.
func (s *server) look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// untilIdle returns when the keeper should end.
func (s *server) untilIdle() {
	timer := time.NewTimer(s.opts.Idle)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.poke:
			timer.Reset(s.opts.Idle)
		case <-timer.C:
			if s.tryEnd() {
				return
			}
			s.rest()
			// Runs end without a poke; look again now and then.
			timer.Reset(s.opts.Idle)
		}
	}
}

// rest gives back the memory that runs needed, once when there are none.
func (s *server) rest() {
	if s.host.Live() == 0 && s.worked.Swap(false) {
		debug.FreeOSMemory()
	}
}

func (s *server) tryEnd() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = s.conns == 0 && len(s.leases) == 0 && s.host.Live() == 0
	return s.ending
}

// Malformed implements [rpc.Handler]: only our own programs connect.
func (c *conn) Malformed(err error) error { return err }

// Notification implements [rpc.Handler].
func (c *conn) Notification(string, json.RawMessage) error { return nil }

// binary implements [handler]. The start of a process is short, and the server
// waits for it: it runs on the goroutine that reads, if possible.
func (c *conn) binary(kind byte, b []byte) error {
	if kind != messageStart {
		return nil // a newer server may send more
	}
	id, params, err := cutID(b)
	if err != nil {
		return err
	}
	p, err := record.DecodeStart(params)
	if err != nil {
		c.transport.refused(id, runproto.EncodeError(fmt.Errorf("%w: %w", spool.ErrInvalid, err)))
		return nil
	}
	start := func() { c.start(id, &p) }
	if isProcess := p.Spec.Engine == "" || p.Spec.Engine == spool.EngineProcess; isProcess && c.transport.runInline(start) {
		return nil
	}
	c.lanes.Go("", len(params), start)
	return nil
}

func (c *conn) start(id uint64, p *record.Start) {
	// The run outlives the connection, so it does not use its context.
	info, err := c.server.host.Start(c.server.ctx, p.Spec)
	c.server.worked.Store(true)
	if err != nil {
		c.transport.refused(id, runproto.EncodeError(err))
		return
	}
	c.transport.started(id, func(dst []byte) []byte { return record.AppendInfo(dst, &info) })
	if p.News {
		c.watch(info.ID)
	}
}

// Request implements [rpc.Handler].
func (c *conn) Request(r *rpc.Request) {
	key := ""
	if r.Method == methodSend {
		var p runproto.RunParams
		_ = json.Unmarshal(r.Params, &p) // decoded again, with its error told
		key = string(p.Run)
	}
	c.lanes.Go(key, r.Size(), func() {
		result, err := c.handle(r)
		r.Reply(result, runproto.EncodeError(err))
	})
}

func decode[T any](r *rpc.Request) (p T, err error) {
	if err := fastjson.Unmarshal(r.Params, &p); err != nil {
		return p, fmt.Errorf("%w: %s: %w", spool.ErrInvalid, r.Method, err)
	}
	return p, nil
}

func (c *conn) handle(r *rpc.Request) (any, error) {
	s := c.server
	switch r.Method {
	case methodHello:
		return helloResult{Protocol, s.opts.Build, s.host.ID(), os.Getpid()}, nil
	case methodStat:
		p, err := decode[runproto.RunParams](r)
		if err != nil {
			return nil, err
		}
		return s.host.Stat(c.ctx, p.Run)
	case methodLive:
		return liveResult{s.host.LiveRuns()}, nil
	case methodAwait:
		p, err := decode[awaitParams](r)
		if err != nil {
			return nil, err
		}
		news, err := c.await(p)
		return &news, err
	case methodSend:
		p, err := decode[runproto.SendParams](r)
		if err != nil {
			return nil, err
		}
		return s.host.Send(c.ctx, p.Run, p.Input)
	case methodControl:
		p, err := decode[runproto.ControlParams](r)
		if err != nil {
			return nil, err
		}
		return struct{}{}, s.host.Control(s.ctx, p.Run, p.Control)
	case methodLease, methodLeased, methodRelease:
		p, err := decode[leaseParams](r)
		if err != nil {
			return nil, err
		}
		return c.lease(r.Method, p)
	}
	return nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method)
}

// watch sends the first news of a run when there is some. If it cannot be had,
// the connection ends, and whoever waits for it asks again.
func (c *conn) watch(id spool.RunID) {
	err := c.server.host.Watch(id, 0, func() {
		if !c.tellEnd(id) {
			c.server.tellers.Go(func() { c.tell(id) })
		}
	})
	if err != nil {
		_ = c.transport.close()
	}
}

// tellEnd sends the first news of a run that has ended with it, as most do, on
// the goroutine that ended it: every other one would cost a wake. It reports
// false if there is more to it, or it would have to wait.
func (c *conn) tellEnd(id spool.RunID) bool {
	page, at, err := c.server.host.Await(c.ctx, id, 0, inlineBytes)
	if err != nil || page.Info.State != spool.StateClosed {
		return false
	}
	news := newsOf(page, at)
	b, err := record.AppendNews(append(make([]byte, 0, messageRoom), messageNews), &news)
	return err == nil && c.transport.trySend(b)
}

// tell sends the first news of a run, whatever it is.
func (c *conn) tell(id spool.RunID) {
	news, err := c.await(awaitParams{Run: id})
	var b []byte
	if err == nil {
		b, err = record.AppendNews([]byte{messageNews}, &news)
	}
	if err == nil {
		err = c.transport.send(b)
	}
	if err != nil {
		_ = c.transport.close()
	}
}

// await waits for news of a run.
func (c *conn) await(p awaitParams) (record.News, error) {
	page, at, err := c.server.host.Await(c.ctx, p.Run, p.After, inlineBytes)
	if n := len(page.Events); err == nil && n > 0 && page.Events[n-1].Kind == spool.KindExited {
		// Most runs are closed right after: say both at once.
		ctx, cancel := context.WithTimeout(c.ctx, lingerFor)
		if more, _, moreErr := c.server.host.Await(ctx, p.Run, page.Next, inlineBytes); moreErr == nil && len(more.Events) > 0 {
			page, at, err = c.server.host.Await(c.ctx, p.Run, p.After, inlineBytes)
		}
		cancel()
	}
	if err != nil {
		return record.News{}, err
	}
	return newsOf(page, at), nil
}

// newsOf is what is said of a page and the place in the files where it ends.
func newsOf(page spool.Page, at store.Position) record.News {
	result := record.News{Info: page.Info, Last: at.Last, Segment: at.Segment, Size: at.Size}
	// Only all of the news is worth sending: the files have it too.
	if page.Next == page.Info.Last && len(page.Events) <= inlineEvents {
		size := 0
		for i := range page.Events {
			size += page.Events[i].Size()
		}
		if size <= inlineBytes {
			result.Events = page.Events
		}
	}
	return result
}

// socketPath chooses where a keeper listens: in the state directory, or in a
// private directory where the path would be too long for a socket.
func socketPath(dir string) (string, error) {
	hosts := filepath.Join(dir, "hosts")
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		return "", fmt.Errorf("keeper: open state directory: %w", err)
	}
	path := filepath.Join(hosts, randomName()+".sock")
	if len(path) <= maxSocketPath {
		return path, nil
	}
	private, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return "", fmt.Errorf("keeper: make a directory for the socket: %w", err)
	}
	return filepath.Join(private, privateName), nil
}
