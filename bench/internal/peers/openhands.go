package peers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

const openHandsVersion = "1.57.0"

// openHands is the agent server of OpenHands.
var openHands = Peer{
	Name: "openhands", Version: openHandsVersion, Source: "PyPI openhands-agent-server, openhands-sdk, openhands-tools",
	Command: "python -m openhands.agent_server --host 127.0.0.1 --port PORT",
	Drive:   "HTTP: POST /api/bash/execute_bash_command for short commands; else start_bash_command, and a search for its events after an order, every 5 ms by the reader that started it and every 100 ms by others",
	Install: func(ctx context.Context) (string, error) {
		return venv(ctx, "openhands-agent-server-"+openHandsVersion, 12, "openhands-agent-server=="+openHandsVersion,
			"openhands-sdk=="+openHandsVersion, "openhands-tools=="+openHandsVersion)
	},
	Launch: func(ctx context.Context, venv, dir string) (Server, error) {
		s := &openHandsServer{venv: venv, dir: dir}
		return s, s.Relaunch(ctx)
	},
}

type openHandsServer struct {
	venv, dir string
	httpServer
}

// Relaunch implements Server.
func (s *openHandsServer) Relaunch(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	if s.process, err = spawn(s.dir, filepath.Join(s.venv, "bin", "python"), "-m", "openhands.agent_server", "--host", "127.0.0.1", "--port", port); err != nil {
		return err
	}
	base := "http://127.0.0.1:" + port
	s.API = NewAPI(base + "/api/bash/")
	return s.ready(ctx, answers(base+"/ready"))
}

// quote makes a shell command of arguments.
func quote(argv []string) string {
	var b strings.Builder
	for _, a := range argv {
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "' ")
	}
	return b.String()
}

type openHandsEvent struct {
	Order    int
	ExitCode *int `json:"exit_code"`
	Stdout   *string
}

// Run implements Server.
func (s *openHandsServer) Run(ctx context.Context, argv ...string) (int, error) {
	var e openHandsEvent
	err := s.Call(ctx, "POST", "execute_bash_command", map[string]any{"command": quote(argv)}, &e)
	if err == nil && e.ExitCode == nil {
		err = errors.New("no exit code")
	}
	if err != nil {
		return 0, err
	}
	return *e.ExitCode, nil
}

// Start implements Server.
func (s *openHandsServer) Start(ctx context.Context, argv ...string) (Job, error) {
	j := &openHandsJob{s: s}
	return j, s.Call(ctx, "POST", "start_bash_command", map[string]any{"command": quote(argv), "timeout": 1000}, j)
}

type openHandsJob struct {
	s  *openHandsServer
	ID string
}

// Reader implements Job.
func (j *openHandsJob) Reader(own bool) Reader {
	every := 100 * time.Millisecond
	if own {
		every = 5 * time.Millisecond
	}
	return &openHandsReader{j: j, every: every, after: -1}
}

// Kill implements Job.
func (j *openHandsJob) Kill(ctx context.Context) error {
	if err := j.s.Call(ctx, "POST", "bash_commands/"+j.ID+"/stop", nil, nil); err != nil {
		return err
	}
	_, err := j.Reader(true).Follow(ctx, func([]byte) {})
	return err
}

type openHandsReader struct {
	j     *openHandsJob
	every time.Duration
	after int
}

// Follow implements Reader.
func (r *openHandsReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	for {
		var page struct{ Items []openHandsEvent }
		query := fmt.Sprintf("bash_events/search?kind__eq=BashOutput&command_id__eq=%s&order__gt=%d&limit=100", r.j.ID, r.after)
		if err := r.j.s.Call(ctx, "GET", query, nil, &page); err != nil {
			return exit, err
		}
		for _, e := range page.Items {
			r.after = e.Order
			if e.Stdout != nil {
				deliver([]byte(*e.Stdout))
			}
			if e.ExitCode != nil {
				return Exit{true, *e.ExitCode}, nil
			}
		}
		if len(page.Items) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return exit, ctx.Err()
		case <-time.After(r.every):
		}
	}
}
