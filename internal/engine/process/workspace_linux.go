package process

import (
	"errors"
	"path/filepath"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/workspace"
)

// HasWorkspaces implements [engine.Workspacer].
func (*Engine) HasWorkspaces() {}

// Workspace implements [engine.Workspaced].
func (s *session) Workspace() *spool.Workspace { return s.workspace }

// workspace makes the workspace of a start, and prepares its isolation. The host
// deletes the workspace if the start fails.
func (e *Engine) workspace(spec *spool.Spec, c *launch.Command, pids int, out engine.Sink) (*isolate.Lease, *spool.Workspace, error) {
	if err := workspace.Check(spec.Workspace); err != nil {
		return nil, nil, invalid(err)
	}
	w := *spec.Workspace
	placer, ok := out.(engine.Placer)
	if !ok || placer.WorkspaceDir() == "" {
		return nil, nil, &spool.StartError{Reason: engine.StartUnsupported, Err: errors.New("there is no state directory for a workspace")}
	}
	dir := placer.WorkspaceDir()
	var err error
	if w.Base, err = filepath.EvalSymlinks(c.Dir); err != nil {
		return nil, nil, &spool.StartError{Reason: engine.StartBadCwd, Err: err}
	}
	if w.Kind != workspace.Snapshot {
		lease, err := e.overlay(spec, c, pids, &isolate.Overlay{Base: w.Base, Dir: dir})
		var refused *spool.StartError
		if err == nil || w.Kind == workspace.Overlay || !errors.As(err, &refused) || refused.Reason != engine.StartUnsupported {
			w.Kind = workspace.Overlay
			return lease, &w, err
		}
		if err := workspace.Remove(dir); err != nil {
			return nil, nil, &spool.StartError{Reason: engine.StartOther, Err: err}
		}
		w.Reason = refused.Err.Error()
	}
	w.Kind, w.MaxBytes = workspace.Snapshot, 0
	lease, err := e.sandboxes.Start(spec, pids, c)
	if err != nil {
		return nil, nil, err
	}
	if _, err := workspace.Create(dir, w.Base, w.Kind); err != nil {
		if lease != nil {
			lease.Release()
		}
		return nil, nil, &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	return lease, &w, nil
}

// overlay makes a workspace with an overlay.
func (e *Engine) overlay(spec *spool.Spec, c *launch.Command, pids int, o *isolate.Overlay) (*isolate.Lease, error) {
	if _, err := workspace.Create(o.Dir, o.Base, workspace.Overlay); err != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	return e.sandboxes.StartOverlay(spec, pids, c, o)
}
