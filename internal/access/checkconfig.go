package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// checkConfig checks that the configuration of an engine names only what is the
// subject's. A configuration that cannot be decoded passes: the engine, which
// decodes it in the same way, refuses it.
func (b *backend) checkConfig(ctx context.Context, engine string, config json.RawMessage) error {
	if len(config) == 0 || b.subject.Scopes.Has(Admin) {
		return nil
	}
	if err := b.checkFork(ctx, config); err != nil || !b.subject.Scopes.RestrictsFiles() {
		return err
	}
	switch engine {
	case python.EngineSandbox:
		var c python.SandboxConfig
		if strict.Unmarshal(config, &c, "config") != nil {
			return nil
		}
		return b.checkSandbox(&c)
	case agent.Engine:
		var c agent.Config
		if strict.Unmarshal(config, &c, "config") != nil || c.Resume == "" {
			return nil
		}
		return b.checkResume(ctx, c.Resume)
	}
	return nil
}

// checkFork checks that a run which the config copies is the subject's.
func (b *backend) checkFork(ctx context.Context, config json.RawMessage) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(config, &members) != nil {
		return nil
	}
	for key, value := range members {
		if !strings.EqualFold(key, "fork") {
			continue
		}
		var id spool.RunID
		if json.Unmarshal(value, &id) != nil || id == "" {
			continue
		}
		if _, err := b.enter(ctx, ActStart, Read, id); err != nil {
			return err
		}
	}
	return nil
}

// checkSandbox checks the directories of this machine that a sandbox uses.
func (b *backend) checkSandbox(c *python.SandboxConfig) error {
	for _, m := range c.Mounts {
		if err := b.subject.Scopes.CheckPath(m.Host); err != nil {
			return fmt.Errorf("mount %s: %w", m.Host, err)
		}
	}
	for _, dir := range []string{c.Dist, c.Wheels} {
		if dir == "" {
			continue
		}
		if err := b.subject.Scopes.CheckPath(dir); err != nil {
			return err
		}
	}
	return nil
}

// checkResume checks that a session of an agent is that of a run of the subject.
// Agents keep the sessions of all directories and of all subjects in one place.
func (b *backend) checkResume(ctx context.Context, session string) error {
	filter := spool.Filter{Engine: agent.Engine, Labels: map[string]string{LabelSubject: b.subject.Name}}
	for info, err := range b.inner.List(ctx, filter) {
		if err != nil { // a run that cannot be read may be another subject's
			continue
		}
		if b.hadSession(ctx, &info, session) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: no run of %s had the session %.100q: without the scope %s/ a token resumes sessions of its own runs only",
		spool.ErrDenied, b.subject, session, filesPrefix)
}

// hadSession reports whether a run of an agent worked in a session.
func (b *backend) hadSession(ctx context.Context, info *spool.Info, session string) bool {
	for q := (spool.Query{MaxBytes: record.BatchBytes}); q.After < info.Last; {
		page, err := b.inner.Read(ctx, info.ID, q)
		if err != nil || page.Next <= q.After {
			return false
		}
		for i := range page.Events {
			if sessionOf(&page.Events[i]) == session {
				return true
			}
		}
		q.After = page.Next
	}
	return false
}

// sessionOf returns the session that an event of an agent names.
func sessionOf(e *spool.Event) string {
	switch e.Kind {
	case spool.KindStarted:
		var started agent.Started
		if json.Unmarshal(e.Data, &started) == nil {
			return started.Resume
		}
	case spool.KindDone:
		var done spool.Done
		if json.Unmarshal(e.Data, &done) == nil {
			return done.Resume
		}
	}
	return ""
}

// CheckPrograms refuses a sandbox that names the program which surrounds it: a
// client that may start sandboxes may not choose what executes outside of them.
func CheckPrograms(spec *spool.Spec) error {
	var c struct{ Node string }
	if spec.Engine != python.EngineSandbox || json.Unmarshal(spec.Config, &c) != nil || c.Node == "" {
		return nil // a configuration that does not decode is refused by its engine
	}
	return &spool.StartError{
		Reason: "invalid", Hint: "set SPOOL_NODE where the server runs",
		Err: fmt.Errorf("%w: node: only the machine that runs a sandbox chooses its Node", spool.ErrInvalid),
	}
}
