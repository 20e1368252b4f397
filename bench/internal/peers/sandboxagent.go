package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spool-run/spool/internal/npmtest"
)

const sandboxAgentVersion = "0.4.2"

// sandboxAgent is the server of rivet.
var sandboxAgent = Peer{
	Name: "sandbox-agent", Version: sandboxAgentVersion, Source: "npm @sandbox-agent/cli-linux-x64",
	Command: "sandbox-agent server --no-telemetry --no-token --port PORT",
	Drive:   "HTTP: POST /v1/processes/run for short commands; else POST /v1/processes, SSE of its logs after a sequence, and its status every 2 ms, since the stream does not end with the command",
	Install: func(context.Context) (string, error) {
		const file = "node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent"
		return npmtest.Program{
			Name: "sandbox-agent-" + sandboxAgentVersion, Packages: []string{"@sandbox-agent/cli-linux-x64@" + sandboxAgentVersion}, File: file,
			Finish: func(dir string) error { return makeExecutable(dir, file) },
		}.Cached()
	},
	Launch: func(ctx context.Context, bin, dir string) (Server, error) {
		s := &sandboxAgentServer{bin: bin, dir: dir}
		return s, s.Relaunch(ctx)
	},
}

type sandboxAgentServer struct {
	bin, dir string
	httpServer
}

// Relaunch implements Server.
func (s *sandboxAgentServer) Relaunch(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	if s.process, err = spawn(s.dir, s.bin, "server", "--no-telemetry", "--no-token", "--port", port); err != nil {
		return err
	}
	s.API = NewAPI("http://127.0.0.1:" + port + "/v1/")
	return s.ready(ctx, answers(s.Base+"health"))
}

// Run implements Server.
func (s *sandboxAgentServer) Run(ctx context.Context, argv ...string) (int, error) {
	var r struct {
		ExitCode *int
		TimedOut bool
	}
	err := s.Call(ctx, "POST", "processes/run", map[string]any{"command": argv[0], "args": argv[1:]}, &r)
	if err != nil {
		return 0, err
	}
	if r.ExitCode == nil {
		return 0, errors.New("no exit code")
	}
	return *r.ExitCode, nil
}

// Start implements Server.
func (s *sandboxAgentServer) Start(ctx context.Context, argv ...string) (Job, error) {
	j := &sandboxAgentJob{s: s}
	return j, s.Call(ctx, "POST", "processes", map[string]any{"command": argv[0], "args": argv[1:]}, j)
}

type sandboxAgentJob struct {
	s    *sandboxAgentServer
	ID   string
	mu   sync.Mutex
	last *sandboxAgentEnd
}

// Reader implements Job.
func (j *sandboxAgentJob) Reader(bool) Reader { return &sandboxAgentReader{j: j} }

// Kill implements Job.
func (j *sandboxAgentJob) Kill(ctx context.Context) error {
	return j.s.Call(ctx, "POST", "processes/"+j.ID+"/kill?waitMs=5000", nil, nil)
}

type sandboxAgentReader struct {
	j     *sandboxAgentJob
	after int64
}

type sandboxAgentEntry struct {
	Sequence int64
	Data     []byte
	Encoding string
}

// Follow implements Reader. When the command has ended, it takes what is left in
// the log without following.
func (r *sandboxAgentReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	stream, cut := context.WithCancel(ctx)
	defer cut()
	resp, err := r.j.s.Do(stream, "GET", fmt.Sprintf("processes/%s/logs?follow=true&since=%d", r.j.ID, r.after), "", nil)
	if err != nil {
		return exit, err
	}
	defer resp.Body.Close()
	end := r.j.end()
	go func() {
		select {
		case <-end.over:
		case <-stream.Done():
		}
		cut()
	}()
	err = r.read(resp.Body, deliver)
	select {
	case <-end.over:
	default:
		return exit, err // cut, or the server has ended
	}
	if end.err != nil {
		return exit, end.err
	}
	exit = end.exit
	for {
		before := r.after
		var rest struct{ Entries []sandboxAgentEntry }
		if err := r.j.s.Call(ctx, "GET", fmt.Sprintf("processes/%s/logs?since=%d", r.j.ID, r.after), nil, &rest); err != nil {
			return exit, err
		}
		for _, e := range rest.Entries {
			r.take(e, deliver)
		}
		if r.after == before {
			return exit, nil
		}
	}
}

// read takes the entries of a stream until it ends.
func (r *sandboxAgentReader) read(stream io.Reader, deliver func([]byte)) error {
	for lines := bufio.NewReaderSize(stream, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var e sandboxAgentEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		r.take(e, deliver)
	}
}

func (r *sandboxAgentReader) take(e sandboxAgentEntry, deliver func([]byte)) {
	if e.Sequence > r.after {
		r.after = e.Sequence
		deliver(e.Data)
	}
}
