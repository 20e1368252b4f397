package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/workspace"
)

// WorkspaceDir implements [engine.Placer].
func (r *run) WorkspaceDir() string { return r.workspaceDir }

// placeWorkspace checks the workspace that a start asks for, and finds its place.
func (h *Host) placeWorkspace(r *run, e engine.Engine, spec *spool.Spec) error {
	if spec.Workspace == nil {
		return nil
	}
	if err := workspace.Check(spec.Workspace); err != nil {
		return &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	if _, ok := e.(engine.Workspacer); !ok {
		return &spool.StartError{Reason: engine.StartUnsupported, Hint: "start the run without a workspace",
			Err: fmt.Errorf("workspace_unavailable: engine %s has no workspaces", spec.Engine)}
	}
	if h.store == nil {
		return &spool.StartError{Reason: engine.StartUnsupported, Err: errors.New("there is no state directory for a workspace")}
	}
	w := *spec.Workspace
	var err error
	if w.Base, err = directory(spec.Cwd); err != nil {
		return &spool.StartError{Reason: engine.StartBadCwd, Hint: "create the working directory or choose another", Err: err}
	}
	if r.workspaceDir, err = h.store.WorkspaceDir(spec.ID); err != nil {
		return h.startError(err)
	}
	spec.Workspace = &w
	return nil
}

// directory returns a working directory without symbolic links.
func directory(cwd string) (string, error) {
	dir, err := filepath.Abs(cwd)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err != nil {
		return "", err
	} else if !info.IsDir() {
		return "", &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return dir, nil
}

// startSession starts the session of a run in the workspace that it asks for: an
// overlay, a snapshot, or a snapshot where the engine cannot have an overlay.
func (r *run) startSession(ctx context.Context, e engine.Engine, spec spool.Spec) (engine.Session, error) {
	if spec.Workspace == nil {
		return e.Start(ctx, spec, r)
	}
	asked := spec.Workspace.Kind
	if asked == workspace.Auto {
		spec.Workspace.Kind = workspace.Overlay
	}
	session, err := r.startIn(ctx, e, spec)
	var refused *spool.StartError
	if asked == workspace.Auto && errors.As(err, &refused) && refused.Reason == engine.StartUnsupported {
		w := *spec.Workspace
		w.Kind, w.MaxBytes, w.Reason = workspace.Snapshot, 0, refused.Err.Error()
		spec.Workspace = &w
		session, err = r.startIn(ctx, e, spec)
	}
	return session, err
}

// startIn makes the workspace of a spec and starts the session in it. After an error
// there is no workspace.
func (r *run) startIn(ctx context.Context, e engine.Engine, spec spool.Spec) (engine.Session, error) {
	if _, err := workspace.Create(r.workspaceDir, spec.Workspace.Base, spec.Workspace.Kind); err != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	session, err := e.Start(ctx, spec, r)
	if err != nil {
		if removeErr := workspace.Remove(r.workspaceDir); removeErr != nil {
			err = errors.Join(err, removeErr)
		}
		return nil, err
	}
	r.mu.Lock()
	r.info.Workspace = spec.Workspace
	r.mu.Unlock()
	return session, nil
}

// How often the disk space of a workspace is measured: every second, but not more
// than this part of the time.
const (
	measureEvery = time.Second
	measureRest  = 20
)

// watchWorkspace kills the run if its changes take more disk space than they may.
func (r *run) watchWorkspace(session engine.Session, w *spool.Workspace) {
	limit := cmp.Or(w.MaxBytes, workspace.DefaultBytes)
	timer := time.NewTimer(measureEvery)
	defer timer.Stop()
	for {
		select {
		case <-r.sessionEnded:
			return
		case <-timer.C:
		}
		began := time.Now()
		if reason := r.overLimit(limit); reason != "" {
			r.exceed(reason)
			_ = session.Control(context.Background(), spool.Control{Op: spool.ControlKill}) // the next round tries again
		}
		timer.Reset(max(measureEvery, measureRest*time.Since(began)))
	}
}

// overLimit says that the workspace is larger than it may be, or "".
func (r *run) overLimit(limit int64) string {
	w, err := workspace.Open(r.workspaceDir)
	if err != nil {
		return ""
	}
	size, err := w.Size()
	if err != nil || size <= limit {
		return ""
	}
	return fmt.Sprintf("its workspace takes %d bytes, and may take %d", size, limit)
}

// exceed logs, once, that the run is killed because of its workspace.
func (r *run) exceed(reason string) {
	r.mu.Lock()
	first := r.exceeded == ""
	if first {
		r.exceeded = reason
	}
	r.mu.Unlock()
	if first {
		_, _ = r.Append(notice(workspace.NoticeLimit, reason+": the run is killed"))
	}
}

// endWorkspace records what the run changed and returns the notice that says so, unless
// the notice of its last turn does. The session has ended.
func (r *run) endWorkspace() []spool.Event {
	close(r.sessionEnded)
	r.mu.Lock()
	has, exceeded := r.info.Workspace, r.exceeded
	r.mu.Unlock()
	if has == nil {
		return nil
	}
	var end []spool.Event
	if limit := cmp.Or(has.MaxBytes, workspace.DefaultBytes); exceeded == "" && has.Kind == workspace.Overlay {
		if reason := r.overLimit(limit); reason != "" {
			end = append(end, notice(workspace.NoticeLimit, reason+": the run had ended before it was noticed"))
		}
	}
	w, err := workspace.Open(r.workspaceDir)
	var summary *workspace.Summary
	if err == nil {
		summary, err = w.End()
	}
	if err != nil {
		return append(end, notice(workspace.NoticeChanges, "what the run changed could not be recorded: "+err.Error()))
	}
	if summary == nil { // the notice of the last turn says it
		return end
	}
	data, err := json.Marshal(summary.Notice())
	if err != nil { // plain fields always encode
		return append(end, notice(workspace.NoticeChanges, summary.Text()))
	}
	return append(end, spool.Event{Kind: spool.KindNotice, Data: data})
}

// Workspaces implements [spool.Workspaces] for a backend whose state directory is on
// this machine: it works on the files itself.
type Workspaces struct {
	stat  func(context.Context, spool.RunID) (spool.Info, error)
	store *store.Store // nil without a state directory
}

var _ spool.Workspaces = Workspaces{}

// NewWorkspaces returns the workspaces of the runs that stat describes.
func NewWorkspaces(stat func(context.Context, spool.RunID) (spool.Info, error), s *store.Store) Workspaces {
	return Workspaces{stat, s}
}

// open opens the workspace of a run. Unless live is true, the run must have ended.
func (w Workspaces) open(ctx context.Context, id spool.RunID, live bool) (*workspace.Workspace, error) {
	info, err := w.stat(ctx, id)
	if err != nil {
		return nil, err
	}
	if w.store == nil || info.Workspace == nil {
		return nil, fmt.Errorf("run %s: %w", id, workspace.ErrNone)
	}
	if !live && info.State != spool.StateClosed {
		return nil, NotFinished(id)
	}
	dir, err := w.store.WorkspaceDir(id)
	if err != nil {
		return nil, err
	}
	opened, err := workspace.Open(dir)
	if errors.Is(err, workspace.ErrNone) { // another process removed the run
		return nil, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
	}
	return opened, err
}

// Changes implements [spool.Workspaces].
func (w Workspaces) Changes(ctx context.Context, id spool.RunID, q spool.ChangeQuery) (spool.ChangePage, error) {
	of, err := w.open(ctx, id, true)
	if err != nil {
		return spool.ChangePage{}, err
	}
	return of.Changes(ctx, q)
}

// Apply implements [spool.Workspaces].
func (w Workspaces) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) (spool.ChangePage, error) {
	of, err := w.open(ctx, id, false)
	if err != nil {
		return spool.ChangePage{}, err
	}
	return of.Apply(ctx, paths, dry)
}

// Discard implements [spool.Workspaces].
func (w Workspaces) Discard(ctx context.Context, id spool.RunID) error {
	of, err := w.open(ctx, id, false)
	if err != nil {
		return err
	}
	return of.Discard(ctx)
}
