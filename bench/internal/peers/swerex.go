package peers

import (
	"context"
	"errors"
	"path/filepath"
)

const sweRexVersion = "1.4.0"

// sweRex is the runtime server of SWE-ReX.
var sweRex = Peer{
	Name: "swe-rex", Version: sweRexVersion, Source: "PyPI swe-rex",
	Command: "swerex-remote --host 127.0.0.1 --port PORT --auth-token TOKEN",
	Drive:   "HTTP: POST /execute, which answers when the command has ended; it has no handle, no stream, no other readers and no kill",
	Install: func(ctx context.Context) (string, error) {
		return venv(ctx, "swe-rex-"+sweRexVersion, 10, "swe-rex=="+sweRexVersion)
	},
	Launch: func(ctx context.Context, venv, dir string) (Server, error) {
		s := &sweRexServer{venv: venv, dir: dir}
		return s, s.Relaunch(ctx)
	},
}

type sweRexServer struct {
	venv, dir string
	httpServer
}

// Relaunch implements Server.
func (s *sweRexServer) Relaunch(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	if s.process, err = spawn(s.dir, filepath.Join(s.venv, "bin", "swerex-remote"), "--host", "127.0.0.1", "--port", port, "--auth-token", "bench"); err != nil {
		return err
	}
	s.API = NewAPI("http://127.0.0.1:" + port)
	s.Header.Set("X-API-Key", "bench")
	return s.ready(ctx, func() bool { return s.Call(ctx, "GET", "/is_alive", nil, nil) == nil })
}

type sweRexAnswer struct {
	Stdout   string
	ExitCode *int `json:"exit_code"`
}

func (s *sweRexServer) execute(ctx context.Context, argv []string) (a sweRexAnswer, err error) {
	return a, s.Call(ctx, "POST", "/execute", map[string]any{"command": argv}, &a)
}

// Run implements Server.
func (s *sweRexServer) Run(ctx context.Context, argv ...string) (int, error) {
	a, err := s.execute(ctx, argv)
	if err == nil && a.ExitCode == nil {
		return 0, errors.New("no exit code")
	}
	if err != nil {
		return 0, err
	}
	return *a.ExitCode, nil
}

// Start implements Server. The request lasts as long as the command.
func (s *sweRexServer) Start(_ context.Context, argv ...string) (Job, error) {
	ctx, cut := context.WithCancel(context.Background())
	j := &sweRexJob{s: s, argv: argv, cut: cut, answered: make(chan struct{})}
	go func() {
		j.answer, j.err = s.execute(ctx, argv)
		close(j.answered)
	}()
	return j, nil
}

type sweRexJob struct {
	s        *sweRexServer
	argv     []string
	cut      context.CancelFunc
	answered chan struct{}
	answer   sweRexAnswer // valid when answered
	err      error
}

// Reader implements Job.
func (j *sweRexJob) Reader(own bool) Reader { return &sweRexReader{j: j, gone: !own} }

// Kill implements Job: all that a client can do is to hang up.
func (j *sweRexJob) Kill(context.Context) error {
	j.cut()
	<-j.answered
	return nil
}

type sweRexReader struct {
	j    *sweRexJob
	gone bool // the answer, which comes once
}

// Follow implements Reader.
func (r *sweRexReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	if r.gone {
		return exit, ErrCannot
	}
	r.gone = true
	defer r.j.cut()
	select {
	case <-r.j.answered:
	case <-ctx.Done():
		return exit, ctx.Err()
	}
	if r.j.err != nil {
		return exit, r.j.err
	}
	if r.j.answer.ExitCode != nil {
		exit = Exit{true, *r.j.answer.ExitCode}
	}
	deliver([]byte(r.j.answer.Stdout))
	return exit, nil
}
