package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

const pueueVersion = "4.0.4"

// pueue is the queue of shell commands.
var pueue = Peer{
	Name: "pueue", Version: pueueVersion, Source: "crates.io pueue",
	Command: "pueued, and pueue parallel 0",
	Drive:   "its command line: pueue add, pueue follow, pueue kill, pueue log, and pueue status --json until the task is done, since pueue wait looks only every two seconds",
	Install: func(context.Context) (string, error) { return cargo("pueue-"+pueueVersion, "pueue", pueueVersion) },
	Launch: func(ctx context.Context, bin, dir string) (Server, error) {
		s := &pueueServer{bin: bin, dir: dir}
		return s, s.Relaunch(ctx)
	},
}

type pueueServer struct {
	bin, dir string
	*process
}

// Relaunch implements Server.
func (s *pueueServer) Relaunch(ctx context.Context) (err error) {
	if s.process, err = spawn(s.dir, filepath.Join(s.bin, "pueued")); err != nil {
		return err
	}
	err = s.ready(ctx, func() bool { _, err := s.pueue(ctx, "status"); return err == nil })
	if err == nil {
		_, err = s.pueue(ctx, "parallel", "0")
	}
	return err
}

// pueue runs a command of the client.
func (s *pueueServer) pueue(ctx context.Context, args ...string) (string, error) {
	return output(ctx, environ(s.dir), append([]string{filepath.Join(s.bin, "pueue")}, args...)...)
}

// Run implements Server.
func (s *pueueServer) Run(ctx context.Context, argv ...string) (int, error) {
	j, err := s.add(ctx, argv)
	if err != nil {
		return 0, err
	}
	exit, err := j.ended(ctx)
	if err == nil && !exit.Known {
		err = errors.New("no exit code")
	}
	return exit.Code, err
}

// Start implements Server.
func (s *pueueServer) Start(ctx context.Context, argv ...string) (Job, error) {
	return s.add(ctx, argv)
}

func (s *pueueServer) add(ctx context.Context, argv []string) (*pueueJob, error) {
	id, err := s.pueue(ctx, append([]string{"add", "--print-task-id", "--escape", "--"}, argv...)...)
	return &pueueJob{s, id}, err
}

// Pids implements Server.
func (s *pueueServer) Pids() []int { return []int{s.cmd.Process.Pid} }

// Kill implements Server.
func (s *pueueServer) Kill() error { return s.kill() }

// Close implements Server.
func (s *pueueServer) Close() error { return s.close() }

type pueueJob struct {
	s  *pueueServer
	id string
}

// Reader implements Job.
func (j *pueueJob) Reader(bool) Reader { return &pueueReader{j} }

// Kill implements Job.
func (j *pueueJob) Kill(ctx context.Context) error {
	if _, err := j.s.pueue(ctx, "kill", j.id); err != nil {
		return err
	}
	_, err := j.ended(ctx)
	return err
}

// Logs implements Shell.
func (s *pueueServer) Logs(j Job) (argv, env []string) {
	return []string{filepath.Join(s.bin, "pueue"), "log", "--full", j.(*pueueJob).id}, environ(s.dir)
}

// ended waits until the task is done.
func (j *pueueJob) ended(ctx context.Context) (exit Exit, err error) {
	for {
		text, err := j.s.pueue(ctx, "status", "--json")
		if err != nil {
			return exit, err
		}
		var state struct {
			Tasks map[string]struct {
				Status map[string]struct{ Result json.RawMessage }
			}
		}
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			return exit, fmt.Errorf("decode the state: %w", err)
		}
		task, ok := state.Tasks[j.id]
		if !ok {
			return exit, fmt.Errorf("no task %s", j.id)
		}
		if done, ok := task.Status["Done"]; ok {
			return pueueExit(done.Result), nil
		}
		select {
		case <-ctx.Done():
			return exit, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// pueueExit decodes the result of a task.
func pueueExit(result []byte) Exit {
	var failed struct{ Failed *int }
	switch {
	case string(result) == `"Success"`:
		return Exit{Known: true}
	case json.Unmarshal(result, &failed) == nil && failed.Failed != nil:
		return Exit{true, *failed.Failed}
	}
	return Exit{}
}

type pueueReader struct{ j *pueueJob }

// Follow implements Reader. It has no position: each reader begins at the
// beginning.
func (r *pueueReader) Follow(ctx context.Context, deliver func([]byte)) (exit Exit, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.j.s.bin, "pueue"), "follow", r.j.id)
	cmd.Env = environ(r.j.s.dir)
	cmd.Stdout = writer(deliver)
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return exit, fmt.Errorf("pueue follow: %w", err)
	}
	return r.j.ended(ctx)
}

// writer is a function as an io.Writer.
type writer func([]byte)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
