// Package peers drives servers that run commands for AI agents, each as its
// users do, behind one small interface: Spool and what a user would pick instead.
//
// The peers come from package registries, with pinned versions, into the cache
// directory of tests. They need neither root nor a container.
package peers

import (
	"context"
	"errors"
)

// Peer is a server program and the client that its users have.
type Peer struct {
	Name    string
	Version string
	Source  string // what is installed, and from where
	Command string // how its server is started, for people to read
	Drive   string // which of its interfaces is used, for people to read
	// Install installs the peer unless it is installed, and returns what
	// Launch needs: a program or a directory.
	Install func(ctx context.Context) (string, error)
	// Launch starts a server whose files are below dir, and waits until it
	// serves.
	Launch func(ctx context.Context, installed, dir string) (Server, error)
}

// All returns the peers in the order of tables. Spool is the first: the program
// at the path.
func All(spool string) []Peer {
	return []Peer{spoolPeer(spool), envd, sandboxAgent, daytona, openHands, sweRex, jupyterServer, pueue}
}

// ErrCannot is the error of an operation that a peer does not have.
var ErrCannot = errors.New("the peer has no such operation")

// Server is a running server of a peer, with a client.
type Server interface {
	// Run runs a command whose output is small and returns its exit code, by
	// the shortest way that the peer has.
	Run(ctx context.Context, argv ...string) (int, error)
	// Start starts a command that does not need a reader.
	Start(ctx context.Context, argv ...string) (Job, error)
	// Pids returns the processes that serve: the server and its parts, but no
	// commands.
	Pids() []int
	// Kill ends the server with SIGKILL, and nothing else.
	Kill() error
	// Relaunch starts another server on the files of one that was killed.
	Relaunch(ctx context.Context) error
	// Close ends the server and everything it left.
	Close() error
}

// Job is a command that a server runs.
type Job interface {
	// Reader returns a reader of the output from its beginning. The own reader
	// belongs to the client that started the command; others come from
	// elsewhere, with a connection of their own.
	Reader(own bool) Reader
	// Kill ends the command by the strongest means of the peer, and returns
	// when the peer says that it has ended.
	Kill(ctx context.Context) error
}

// Reader reads the output of a job.
type Reader interface {
	// Follow passes on what comes after the position of the reader, or the best
	// that the peer can do, and returns the exit code when the output is
	// complete, as far as the peer says. It returns when ctx ends, too, which
	// cuts the connection; the next call continues with another one.
	Follow(ctx context.Context, deliver func([]byte)) (Exit, error)
}

// Exit is how a command ended, as far as a reader was told.
type Exit struct {
	Known bool
	Code  int
}

// Shell is a server whose jobs' output a command of the shell prints.
type Shell interface {
	// Logs returns the command and its environment.
	Logs(j Job) (argv, env []string)
}
