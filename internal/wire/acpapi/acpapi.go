// Package acpapi serves a [spool.Backend] over the Agent Client Protocol, as an agent:
// an editor talks to it, and behind it is any agent that Spool runs. docs/acp.md
// describes it.
//
// A session is a run, or several: when its run has ended, the next prompt goes on in
// another one. A client of a session is a reader with a cursor. Nothing is kept beside
// the logs, so that any number of clients may share a session, come back to it, and
// answer what it asks.
//
// The client side of the protocol, with which Spool runs agents that speak it, is
// internal/engine/agents/acp.
package acpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Options configure a server.
type Options struct {
	Backend spool.Backend
	// Config is how the agent of a new session is run, and Spec the rest of what its
	// run is started from. Sessions set the directory, the labels and what to resume.
	Config  agent.Config
	Spec    spool.Spec
	Version string
	Logger  *slog.Logger // nil discards
}

// Server is an agent for clients of the protocol.
type Server struct {
	opts Options

	mu      sync.Mutex
	started []spool.RunID
}

// New returns a server.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Config.Deltas = true // an editor shows words as they come
	return &Server{opts: o}
}

// Started returns the runs that this server started.
func (s *Server) Started() []spool.RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.started)
}

// start starts a run.
func (s *Server) start(ctx context.Context, spec spool.Spec) (*spool.Run, error) {
	run, err := spool.Start(ctx, s.opts.Backend, spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.started, run.ID()) {
		s.started = append(s.started, run.ID())
	}
	return run, nil
}

// Serve serves a client that writes to in and reads from out, one message per line,
// until it closes in. Runs go on.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &client{Server: s, conn: newConn(rpc.Lines(in, out, "the client"), s.opts.Logger), ctx: ctx, sessions: make(map[spool.RunID]*session)}
	err := c.conn.serve(ctx, c)
	cancel()
	c.work.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
