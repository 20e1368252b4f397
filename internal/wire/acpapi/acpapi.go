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

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/contain"
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
	// Images says that the agent can be shown images, which editors are told before it
	// runs.
	Images bool
	// Version2 has clients that ask for it get version 2 of the protocol, a draft.
	Version2 bool
	// Started hears of every run that the server started; nil means that nobody does.
	Started func(spool.RunID)
}

// Server is an agent for clients of the protocol.
type Server struct{ opts Options }

// New returns a server.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Config.Deltas = true // an editor shows words as they come
	return &Server{opts: o}
}

// start starts a run.
func (s *Server) start(ctx context.Context, spec spool.Spec) (*spool.Run, error) {
	run, err := spool.Start(ctx, s.opts.Backend, spec)
	if err == nil && s.opts.Started != nil {
		s.opts.Started(run.ID())
	}
	return run, err
}

// Serve serves a client that writes to in and reads from out, one message per line,
// until it closes in. Runs go on.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return s.ServeMessages(ctx, rpc.Lines(in, out, "the client"))
}

var errPanicked = errors.New("internal error")

// Messages carries messages of a client. One goroutine reads; any number may write. It
// may be an [io.Closer], which ends the reading.
type Messages interface {
	// Read returns the next message, and whether it is binary. [io.EOF] means that the
	// client has left.
	Read(ctx context.Context) (b []byte, binary bool, err error)
	// Write sends the parts as one message.
	Write(ctx context.Context, binary bool, parts ...[]byte) error
}

// ServeMessages serves a client until it leaves or the context ends and its messages with
// it. Runs go on.
func (s *Server) ServeMessages(ctx context.Context, m Messages) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &client{Server: s, conn: newConn(m, s.opts.Logger), ctx: ctx, version: 1, sessions: make(map[spool.RunID]*session)}
	err := errPanicked
	if !contain.Do(s.opts.Logger, "a connection", func() { err = c.conn.serve(ctx, c) }) {
		c.conn.end()
	}
	cancel()
	c.work.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
