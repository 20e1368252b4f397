// Package mcpapi serves a [spool.Backend] over the Model Context Protocol: tools with
// which a model starts runs, reads them and types to them, and resources with what
// they wrote. docs/mcp.md describes them.
//
// Nothing depends on a session: each result has the id of its run and the cursor to
// read on from, so that a call that was cut or gave up has lost nothing.
//
// No other package uses the SDK of the protocol.
package mcpapi

import (
	"context"
	"crypto/cipher"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/contain"
	"github.com/spool-run/spool/internal/lens"
)

// Options configure a server.
type Options struct {
	Backend spool.Backend
	// Subject is who calls; nil means the owner of the machine. Tools that its
	// scopes do not allow are not listed, and refused.
	Subject *access.Subject
	// AllowAnswer offers the tool that answers asks, with which a model can approve
	// what it does itself.
	AllowAnswer bool
	// Env and AgentEnv are what commands and agents inherit.
	Env, AgentEnv *spool.EnvPolicy
	// Cwd is where runs start, and what other directories are relative to; if it is
	// empty, both are left to the backend.
	Cwd     string
	Version string
	Logger  *slog.Logger // nil discards
	// Started hears of every run that the server started; nil means that nobody does.
	Started func(spool.RunID)

	// Key seals what clients keep while they ask their users, 32 bytes; nil means a key
	// of this process.
	Key []byte

	// Progress is how often a call that waits says how far its run is, if it was
	// asked to. Zero means 5 seconds.
	Progress time.Duration
	// Heartbeat is the silence after which a stream over HTTP gets a comment, so that
	// nobody on the way takes it for dead. Zero means 15 seconds.
	Heartbeat time.Duration
	// Updates is how often at most clients hear that a run which they listen to has
	// changed. Zero means a second.
	Updates time.Duration
}

// listTTL is how long clients may keep lists: the tools depend on nothing but the scopes.
const listTTL = 5 * time.Minute

// progressEvery is the default of [Options.Progress].
const progressEvery = 5 * time.Second

// Server serves one subject.
type Server struct {
	opts Options
	lens *lens.Lens
	mcp  *mcp.Server
	aead cipher.AEAD

	sessions sync.Mutex // held while a Python session is looked for and started
}

// New returns a server. It panics if the key has another length.
func New(o Options) *Server {
	if o.Subject == nil {
		o.Subject = access.Owner()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == 0 {
		o.Progress = progressEvery
	}
	if o.Updates == 0 {
		o.Updates = updateEvery
	}
	s := &Server{opts: o, lens: lens.New(o.Backend, lens.Options{})}
	var err error
	if s.aead, err = newSeal(o.Key); err != nil {
		panic("mcpapi: " + err.Error())
	}
	listeners := &subscriptions{server: s, open: make(map[subscription]struct{}), readers: make(map[string]*updateReader)}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "spool", Title: "Spool", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       o.Logger,
		Capabilities: &mcp.ServerCapabilities{
			Tools:     &mcp.ToolCapabilities{},
			Resources: &mcp.ResourceCapabilities{Subscribe: true},
		},
		SubscribeHandler:   listeners.subscribe,
		UnsubscribeHandler: listeners.unsubscribe,
		SetCacheable: func(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
			if _, ok := req.GetParams().(*mcp.ReadResourceParams); ok {
				return // what a run wrote changes
			}
			c.TTLMs, c.CacheScope = int(listTTL.Milliseconds()), "private"
		},
	})
	for i := range tools {
		if t := &tools[i]; s.offers(t) {
			s.mcp.AddTool(t.listed(), s.handler(t))
		}
	}
	s.addResources()
	s.mcp.AddReceivingMiddleware(s.contained) // the last one is around all others
	return s
}

// contained answers a request whose handler panics with an error.
func (s *Server) contained(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		if !contain.Do(s.opts.Logger, method, func() { result, err = next(ctx, method, req) }) {
			return nil, errors.New("internal error")
		}
		return result, err
	}
}

// instructions tell a model how the tools work together.
const instructions = `Spool runs commands, Python and coding agents as runs with durable logs. ` +
	`Every result begins with the run's id and "next", the cursor: a command that still runs goes on, and read_run with after=next shows what came since. ` +
	`To wait, give wait_ms with until instead of polling.`

// offers reports whether a tool is there for the subject.
func (s *Server) offers(t *tool) bool {
	return (!t.answers || s.opts.AllowAnswer) && t.check(s.opts.Subject.Scopes) == nil
}

// Run serves a client that writes to in and reads from out, one message per line, until
// it closes in. Runs go on.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.mcp.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

// start starts a run.
func (s *Server) start(ctx context.Context, spec spool.Spec) (*spool.Run, error) {
	run, err := spool.Start(ctx, s.opts.Backend, spec)
	if err == nil && s.opts.Started != nil {
		s.opts.Started(run.ID())
	}
	return run, err
}
