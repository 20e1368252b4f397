package keeper

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/workspace"
)

var _ spool.Workspaces = (*Backend)(nil)

// openWorkspace opens the workspace of a run, which this process works on itself.
func (b *Backend) openWorkspace(ctx context.Context, id spool.RunID, live bool) (*workspace.Workspace, error) {
	info, err := b.Stat(ctx, id)
	if err != nil {
		return nil, err
	}
	return host.OpenWorkspace(b.store, &info, live)
}

// Changes implements [spool.Workspaces].
func (b *Backend) Changes(ctx context.Context, id spool.RunID, patch bool) ([]spool.Change, error) {
	w, err := b.openWorkspace(ctx, id, true)
	if err != nil {
		return nil, err
	}
	return w.Changes(ctx, patch)
}

// Apply implements [spool.Workspaces].
func (b *Backend) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) ([]spool.Change, error) {
	w, err := b.openWorkspace(ctx, id, false)
	if err != nil {
		return nil, err
	}
	return w.Apply(ctx, paths, dry)
}

// Discard implements [spool.Workspaces].
func (b *Backend) Discard(ctx context.Context, id spool.RunID) error {
	w, err := b.openWorkspace(ctx, id, false)
	if err != nil {
		return err
	}
	return w.Discard(ctx)
}
