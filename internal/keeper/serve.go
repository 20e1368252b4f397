// Package keeper runs processes that outlive the servers and commands that start
// them. A keeper is one small process per state directory and build. It owns the
// child processes, reads their output and appends to their logs. Every other
// process is a reader: it reads the files of the logs, and the keeper tells it
// over a unix socket when there is more.
//
// So a server may be killed, restarted or replaced at any time: children run on,
// every byte they write is logged, and their exit codes are known. A keeper is
// started when first needed and ends when it is idle.
//
// [Serve] runs a keeper. [Open] returns a [Backend] that uses keepers.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	fastjson "github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/gopool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/peer"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// DefaultIdle is how long a keeper stays without live runs and connections.
const DefaultIdle = 10 * time.Second

// closedDelay is how long the update with the exit of a run waits for the closed
// event, which usually follows at once.
const closedDelay = 300 * time.Microsecond

// tempPrefixes begin the names of the temporary directories of commands: the images
// that "spool py" saves, which the user may still look at when the command has
// ended, and what checks of the machine leave when they are killed. A keeper that
// starts removes those that have not changed for tempAge.
var tempPrefixes = []string{"spool-py-", "spool-doctor-", "spool-probe-"}

const tempAge = 24 * time.Hour

// spareFiles is the number of files prepared for the next runs. They make up for
// the time that the message to the keeper takes.
const spareFiles = 16

// Bounds of the running requests of one connection.
const (
	maxInFlight      = 16384
	maxInFlightBytes = 64 << 20
)

// newLanes returns the lanes of a connection.
func newLanes() *rpc.Lanes { return rpc.NewLanes(maxInFlight, maxInFlightBytes) }

// ServeOptions configure a keeper.
type ServeOptions struct {
	Host  host.Options // its Dir, Engines, Sweep and policies
	Build string       // a server of another build starts its own keeper
	Idle  time.Duration
	// Ready is called once servers can connect.
	Ready func()
}

// server is a running keeper.
type server struct {
	opts ServeOptions
	host *host.Host
	ctx  context.Context

	updates gopool.Pool // sends updates

	mu     sync.Mutex
	conns  int
	leases map[label]*lease
	holds  map[label]*hold
	ending bool
	check  chan struct{} // has room for one; filled when the keeper may have become idle
}

// Serve runs a keeper. It returns once the keeper was idle for ServeOptions.Idle,
// or ctx ended, which ends the runs.
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
	s := &server{opts: o, host: h, ctx: ctx, leases: make(map[label]*lease), holds: make(map[label]*hold), check: make(chan struct{}, 1)}
	if err := h.Register(); err != nil {
		return errors.Join(err, ln.Close(), h.Close())
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.accept(ln, &wg) })
	if o.Ready != nil {
		o.Ready()
	}
	wg.Go(func() { privatedir.SweepTemp(os.TempDir(), tempPrefixes, tempAge) })
	s.waitIdle()
	// From here on a server finds no keeper, or its connection is closed and
	// it looks again.
	err = errors.Join(ln.Close(), h.Unregister())
	cancel()
	wg.Wait()
	s.endLeases()
	err = errors.Join(err, h.Close(), removeSocket(dir, path))
	s.updates.Wait() // all runs have ended
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
			// Most likely there are no descriptors left: connections
			// wait in the socket's queue.
			if pause.For(s.ctx, 10*time.Millisecond) != nil {
				return
			}
			continue
		}
		if _, err := peer.Check(c); err != nil {
			_ = c.Close()
			continue
		}
		wg.Go(func() { s.serveConn(c) })
	}
}

// serverConn is the connection of one server or command.
type serverConn struct {
	server    *server
	transport *transport
	ctx       context.Context
	lanes     *rpc.Lanes
	awaits    awaits
}

// serveConn serves one connection until it ends.
func (s *server) serveConn(nc net.Conn) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	s.conns++
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(s.ctx)
	c := &serverConn{server: s, ctx: ctx, lanes: newLanes()}
	c.serve(nc)
	cancel()
	c.lanes.Wait()
	c.awaits.end()
	s.mu.Lock()
	s.conns--
	s.mu.Unlock()
	s.dropLeases(c)
	s.checkIdle()
}

// serve handles requests until the connection ends.
func (c *serverConn) serve(nc net.Conn) {
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

// checkIdle has the keeper check whether it is idle.
func (s *server) checkIdle() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// waitIdle returns when the keeper should end. The process that started the keeper
// has at least DefaultIdle for its first connection, because the machine may be busy.
func (s *server) waitIdle() {
	timer := time.NewTimer(max(s.opts.Idle, DefaultIdle))
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.check:
			timer.Reset(s.opts.Idle)
		case <-timer.C:
			if s.tryEnd() {
				return
			}
			// The end of a run fills no channel: check periodically.
			timer.Reset(s.opts.Idle)
		}
	}
}

// tryEnd reports whether the keeper is idle. From then on it serves no new
// connection.
func (s *server) tryEnd() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = s.conns == 0 && len(s.leases) == 0 && s.host.Live() == 0
	return s.ending
}

// Malformed implements [rpc.Handler]. Only our own programs connect, so it ends
// the connection.
func (c *serverConn) Malformed(err error) error { return err }

// Notification implements [rpc.Handler].
func (c *serverConn) Notification(string, json.RawMessage) error { return nil }

// binary implements [handler]. The start of a process is short, and the server
// waits for it: it runs on the goroutine that reads, if possible.
func (c *serverConn) binary(kind byte, b []byte) error {
	switch kind {
	case messageStart:
	case messageAwait:
		return c.awaitNews(b)
	default:
		return nil // a newer server may send more
	}
	id, params, err := cutID(b)
	if err != nil {
		return err
	}
	p, err := record.DecodeStart(params)
	if err != nil {
		c.transport.refused(messageRefused, id, runproto.EncodeError(fmt.Errorf("%w: %w", spool.ErrInvalid, err)))
		return nil
	}
	start := func() { c.start(id, &p) }
	if isProcess := p.Spec.Engine == "" || p.Spec.Engine == spool.EngineProcess; isProcess && c.transport.runInline(start) {
		return nil
	}
	c.lanes.Go("", len(params), start)
	return nil
}

func (c *serverConn) start(id uint64, p *record.Start) {
	// The run outlives the connection, so it does not use its context.
	info, err := c.server.start(p.Spec)
	if err != nil {
		c.transport.refused(messageRefused, id, runproto.EncodeError(err))
		return
	}
	if p.Closed {
		c.answerClosed(id, info)
		return
	}
	c.transport.started(id, func(dst []byte) []byte { return record.AppendInfo(dst, &info) })
	if p.Update {
		c.watchFirst(info.ID)
	}
}

// Request implements [rpc.Handler].
func (c *serverConn) Request(r *rpc.Request) {
	if r.Method == methodAwait {
		c.lanes.Go("", r.Size(), func() { c.await(r) })
		return
	}
	key := ""
	if r.Method == methodSend {
		var p runproto.RunParams
		_ = json.Unmarshal(r.Params, &p) // handle decodes it again and returns the error
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

func (c *serverConn) handle(r *rpc.Request) (any, error) {
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
	case methodWatch:
		p, err := decode[watchParams](r)
		if err != nil {
			return nil, err
		}
		if p.Now {
			return host.Changes{Version: s.host.News()}, nil
		}
		return s.host.NewsAfter(c.ctx, p.After)
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
	case methodRename:
		p, err := decode[renameParams](r)
		if err != nil {
			return nil, err
		}
		return s.host.Rename(c.ctx, p.Run, p.Name)
	case methodInspect:
		p, err := decode[runproto.InspectParams](r)
		if err != nil {
			return nil, err
		}
		return s.host.Inspect(c.ctx, p.Run, p.Question)
	case methodForget:
		p, err := decode[forgetParams](r)
		if err != nil {
			return nil, err
		}
		s.host.Forget(p.Runs)
		return struct{}{}, nil
	case methodLease, methodLeased, methodRelease:
		p, err := decode[leaseParams](r)
		if err != nil {
			return nil, err
		}
		return c.lease(r.Method, p)
	case methodHold:
		p, err := decode[leaseParams](r)
		if err != nil {
			return nil, err
		}
		return struct{}{}, s.hold(p)
	}
	return nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method)
}

// watchFirst sends the first update of a run once the run has an event. After an
// error it ends the connection, and the server asks for the update.
func (c *serverConn) watchFirst(id spool.RunID) {
	send := func() {
		if !c.trySendEnd(id) {
			c.server.updates.Go(func() { c.sendUpdate(id) })
		}
	}
	switch stop, err := c.server.host.OnEvent(c.ctx, id, 0, send); {
	case err != nil:
		_ = c.transport.close()
	case stop == nil:
		send()
	}
}

// trySendEnd sends the first update of a run if the run has already ended, on the
// goroutine that ended it, which saves waking another. It reports false if the
// run goes on or sending would have to wait.
func (c *serverConn) trySendEnd(id spool.RunID) bool {
	page, at, err := c.server.host.Await(c.ctx, id, 0, inlineBytes)
	if err != nil || page.Info.State != spool.StateClosed {
		return false
	}
	update := newUpdate(page, at)
	b, err := record.AppendUpdate(append(make([]byte, 0, messageRoom), messageUpdate), &update)
	return err == nil && c.transport.trySend(b)
}

// sendUpdate waits for the first update of a run and sends it.
func (c *serverConn) sendUpdate(id spool.RunID) {
	update, err := c.update(awaitParams{Run: id})
	var b []byte
	if err == nil {
		b, err = record.AppendUpdate([]byte{messageUpdate}, &update)
	}
	if err == nil {
		err = c.transport.send(b)
	}
	if err != nil {
		_ = c.transport.close()
	}
}

// hostsDir is the directory of the hosts and their sockets in a state directory.
func hostsDir(dir string) string { return filepath.Join(dir, "hosts") }

// socketPath returns a path for the keeper's socket: in the state directory, or
// in a private directory if that path would be too long for a socket.
func socketPath(dir string) (string, error) {
	hosts := hostsDir(dir)
	for _, d := range []string{dir, hosts} {
		if err := privatedir.Make(d); err != nil {
			return "", fmt.Errorf("keeper: open state directory: %w", err)
		}
	}
	path := filepath.Join(hosts, randomName()+".sock")
	if len(path) <= maxSocketPath {
		return path, nil
	}
	private, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return "", fmt.Errorf("keeper: the path of the state directory is too long for a socket (%d bytes; the limit is %d), and there is no directory for temporary files: %w; choose a shorter one, or set TMPDIR", len(path), maxSocketPath, err)
	}
	return filepath.Join(private, privateName), nil
}
