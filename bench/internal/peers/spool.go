package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
)

// spoolPeer is Spool, through package client.
func spoolPeer(path string) Peer {
	return Peer{
		Name: "spool", Source: "this repository", Command: "spool exec-server --listen ws://127.0.0.1:0",
		Drive:   "Go client: spool.Execute, spool.Start, Run.Stream, Run.Kill",
		Install: func(context.Context) (string, error) { return filepath.Abs(path) },
		Launch: func(ctx context.Context, bin, dir string) (Server, error) {
			s := &spoolServer{bin: bin, dir: dir}
			return s, s.Relaunch(ctx)
		},
	}
}

type spoolServer struct {
	bin, dir string
	p        *process
	url      string
	c        *client.Client
}

// Relaunch implements Server.
func (s *spoolServer) Relaunch(ctx context.Context) (err error) {
	// The server prints its address when it listens.
	if err := os.Remove(filepath.Join(s.dir, "log")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if s.p, err = spawn(s.dir, s.bin, "exec-server", "--listen", "ws://127.0.0.1:0"); err != nil {
		return err
	}
	err = s.p.ready(ctx, func() bool {
		f, err := os.Open(filepath.Join(s.dir, "log"))
		if err != nil {
			return false
		}
		defer f.Close()
		line, err := bufio.NewReader(f).ReadString('\n')
		s.url = strings.TrimSpace(line)
		return err == nil && strings.HasPrefix(s.url, "ws://")
	})
	if err == nil {
		s.c, err = s.dial(ctx)
	}
	return err
}

func (s *spoolServer) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.url, client.Options{Reconnect: -1})
}

func (s *spoolServer) start(ctx context.Context, argv []string) (*spool.Run, error) {
	return spool.Start(ctx, s.c, s.spec(argv))
}

func (s *spoolServer) spec(argv []string) spool.Spec {
	return spool.Spec{Argv: argv, Env: map[string]string{"PATH": os.Getenv("PATH"), mark: s.dir}}
}

// Run implements Server.
func (s *spoolServer) Run(ctx context.Context, argv ...string) (int, error) {
	info, err := spool.Execute(ctx, s.c, s.spec(argv))
	if err != nil {
		return 0, err
	}
	if o := info.Outcome; o == nil || o.Kind != spool.Exited {
		return 0, fmt.Errorf("outcome %v", o)
	}
	return info.Outcome.ExitCode(), nil
}

// Start implements Server.
func (s *spoolServer) Start(ctx context.Context, argv ...string) (Job, error) {
	r, err := s.start(ctx, argv)
	return &spoolJob{s, r.ID()}, err
}

// Pids implements Server: the keeper serves, too.
func (s *spoolServer) Pids() []int {
	pids := []int{s.p.cmd.Process.Pid}
	owners, err := host.Owners(filepath.Join(s.dir, "spool"))
	if err != nil {
		return pids
	}
	for _, o := range owners {
		pids = append(pids, o.Pid)
	}
	return pids
}

// Kill implements Server. The keeper is not the server: it has no socket of its
// own for clients.
func (s *spoolServer) Kill() error {
	err := s.p.kill()
	_ = s.c.Close() // its server has ended
	return err
}

// Close implements Server.
func (s *spoolServer) Close() error {
	if s.c != nil {
		_ = s.c.Close() // its server may have been killed
	}
	return s.p.close()
}

type spoolJob struct {
	s  *spoolServer
	id spool.RunID
}

// Reader implements Job.
func (j *spoolJob) Reader(own bool) Reader {
	return &spoolReader{j: j, shared: own}
}

// Kill implements Job.
func (j *spoolJob) Kill(ctx context.Context) error {
	r := spool.Attach(j.s.c, j.id)
	if err := r.Kill(ctx); err != nil {
		return err
	}
	_, err := r.Wait(ctx)
	return err
}

// Logs implements Shell.
func (s *spoolServer) Logs(j Job) (argv, env []string) {
	return []string{s.bin, "logs", string(j.(*spoolJob).id)}, environ(s.dir)
}

type spoolReader struct {
	j      *spoolJob
	shared bool // begins on the connection of the client that started the run
	after  spool.Seq
}

// Follow implements Reader.
func (r *spoolReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	c := r.j.s.c
	if !r.shared {
		if c, err = r.j.s.dial(ctx); err != nil {
			return exit, err
		}
		defer func() { _ = c.Close() }() // the server may have ended
	}
	r.shared = false
	for e, err := range spool.Attach(c, r.j.id).Stream(ctx, r.after) {
		if err != nil {
			return exit, err
		}
		if e.Seq == 0 { // of the connection, not of the run
			return exit, fmt.Errorf("the connection was lost at event %d", r.after)
		}
		r.after = e.Seq
		if o, ok := e.Outcome(); ok {
			exit = Exit{o.Kind == spool.Exited, o.ExitCode()}
		}
		if len(e.Bytes) > 0 {
			deliver(e.Bytes)
		}
	}
	return exit, ctx.Err()
}

// output runs a program and returns what it printed.
func output(ctx context.Context, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	b, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tailOf(b))
	}
	return strings.TrimSpace(string(b)), err
}
