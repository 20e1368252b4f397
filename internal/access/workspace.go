package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
)

// workspaces returns the workspaces of the backend.
func (b *backend) workspaces() (spool.Workspaces, error) {
	w, ok := b.inner.(spool.Workspaces)
	if !ok {
		return nil, fmt.Errorf("workspace of a run: %w by this server", spool.ErrUnsupported)
	}
	return w, nil
}

// workspacesFor returns them after a check of the scope and the run.
func (b *backend) workspacesFor(ctx context.Context, act string, scope Scope, id spool.RunID) (spool.Workspaces, error) {
	w, err := b.workspaces()
	if err != nil {
		return nil, err
	}
	info, err := b.enter(ctx, act, scope, id)
	if err == nil {
		err = b.checkChange(&info, act)
	}
	return w, err
}

// Changes implements [spool.Workspaces]. It needs the right to read the run.
func (b *backend) Changes(ctx context.Context, id spool.RunID, q spool.ChangeQuery) (spool.ChangePage, error) {
	w, err := b.workspaces()
	if err != nil {
		return spool.ChangePage{}, err
	}
	if err := b.enterRead(ctx, id); err != nil {
		return spool.ChangePage{}, err
	}
	page, err := w.Changes(ctx, id, q)
	if err != nil || b.account == nil {
		return page, err
	}
	size := 0
	for i := range page.Changes {
		size += len(page.Changes[i].Path) + len(page.Changes[i].Patch)
	}
	return page, b.pay(ctx, size)
}

// Apply implements [spool.Workspaces]. It needs the right to control the run, which
// could have changed its directory itself.
func (b *backend) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) (spool.ChangePage, error) {
	w, err := b.workspacesFor(ctx, ActApply, Control, id)
	if err != nil {
		return spool.ChangePage{}, err
	}
	page, err := w.Apply(ctx, id, paths, dry)
	if err == nil && !dry {
		b.note(Entry{Act: ActApply, Run: id})
	}
	return page, err
}

// Discard implements [spool.Workspaces]. It needs the right to delete the run.
func (b *backend) Discard(ctx context.Context, id spool.RunID) error {
	w, err := b.workspacesFor(ctx, ActDiscard, Delete, id)
	if err != nil {
		return err
	}
	if err = w.Discard(ctx, id); err == nil {
		b.note(Entry{Act: ActDiscard, Run: id})
	}
	return err
}
