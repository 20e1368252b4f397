package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
)

// isolate completes the isolation that a spec asks for, so that the agent can write
// where it keeps its configuration and sessions, and returns what the run has. Every
// process of the agent then starts in a sandbox, and sees the overlay, if there is
// one; that it can is checked now.
func (e *Engine) isolate(s *session, spec *spool.Spec, env []string, o *isolate.Overlay) (*spool.Isolation, error) {
	if !isolate.Isolates(spec.Isolation) {
		lease, err := e.sandboxes.StartOverlay(spec, 0, &launch.Command{Dir: spec.Cwd}, o)
		if lease != nil {
			lease.Release()
		}
		return e.sandboxes.Report(spec, nil), err
	}
	if s.agent.Name == agent.Codex && s.config.Sandbox != "danger-full-access" && !s.config.SkipPermissions {
		return nil, &spool.StartError{Reason: engine.StartInvalid, Err: errors.New("codex cannot make its own sandbox within an isolated run"),
			Hint: "use --sandbox danger-full-access: the isolation of the run stays around codex"}
	}
	asked := *spec.Isolation
	state, err := stateOf(s, spec.Cwd, env)
	if err != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	request := asked
	request.Writable = slices.Clone(asked.Writable)
	if len(request.Writable) == 0 && asked.Profile != string(isolate.ReadOnly) {
		request.Writable = []string{spec.Cwd}
	}
	// Relative paths are below what was asked for, not below the agent's own.
	request.Protected = nil
	for _, path := range asked.Protected {
		for _, root := range request.Writable {
			if filepath.IsAbs(path) {
				root = ""
			} else if !filepath.IsAbs(root) {
				root = filepath.Join(spec.Cwd, root)
			}
			request.Protected = append(request.Protected, filepath.Join(root, path))
		}
	}
	for _, path := range state {
		if o == nil || !below(o.Base, path) { // else it is in the overlay
			request.Writable = append(request.Writable, path)
		}
	}
	spec.Isolation = &request
	lease, err := e.sandboxes.StartOverlay(spec, limits.DefaultPids, &launch.Command{Dir: spec.Cwd, Memory: spec.Limits.MemoryBytes, CPUs: spec.Limits.CPUs}, o)
	if err != nil {
		return nil, err
	}
	has := *lease.Isolation()
	lease.Release()
	has.Protected = asked.Protected
	return &has, nil
}

// below reports whether what is at a path is in a directory without symbolic links.
func below(dir, path string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	return err == nil && isolate.Below(dir, resolved)
}

// askHost puts an ask about a host, which is of the turn that runs, and waits for the
// answer. The policy of the run may decide.
func (s *session) askHost(ctx context.Context, q spool.Ask) (spool.Answer, error) {
	defer s.inbox.rouse() // the agent may be silent for less long again
	return s.turns.Await(ctx, q)
}

// hostAsks returns what asks about hosts; nil if the run cannot.
func (s *session) hostAsks(spec *spool.Spec) isolate.AskFunc {
	if spec.Isolation == nil || !spec.Isolation.AskHosts {
		return nil
	}
	return isolate.AskFunc(s.askHost).Once()
}

// stateOf returns where the agent of a session keeps its configuration and sessions.
// It makes the directories, as the agent would.
func stateOf(s *session, cwd string, env []string) ([]string, error) {
	find := s.agent.State
	if s.agent.Name == agent.ACP {
		find = acpState(s.config.Command)
	}
	if find == nil {
		return nil, nil
	}
	var list []string
	for _, path := range find(func(name string) string { return environ.Get(env, name) }) {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		if filepath.Ext(path) == ".json" { // a file, which an agent without one does not need
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				continue
			}
		} else if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("make a directory of %s: %w", s.agent.Name, err)
		}
		list = append(list, path)
	}
	return list, nil
}

// acpState finds the state of an agent that speaks ACP by the name of its program,
// if it is known.
func acpState(command []string) func(func(string) string) []string {
	if len(command) == 0 {
		return nil
	}
	name := filepath.Base(command[0])
	if name == "gemini" {
		return func(getenv func(string) string) []string { return []string{talk.Dir(getenv, "", ".gemini")} }
	}
	for _, a := range byName() {
		if a.Program == name {
			return a.State
		}
	}
	return nil
}
