package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
)

// Remove implements [spool.Remover].
func (b *backend) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	remover, ok := b.inner.(spool.Remover)
	if !ok {
		return spool.Removal{}, fmt.Errorf("remove runs: %w by this server", spool.ErrUnsupported)
	}
	if err := b.subject.Scopes.Require(Delete); err != nil {
		return spool.Removal{}, b.deny(ActDelete, "", err)
	}
	for _, id := range ids {
		info, err := b.enter(ctx, ActDelete, Delete, id)
		if err == nil {
			err = b.checkChange(&info, ActDelete)
		}
		if err != nil {
			return spool.Removal{}, err
		}
	}
	removed, err := remover.Remove(ctx, ids, dry)
	if err == nil && !dry {
		for _, id := range removed.Runs {
			b.note(Entry{Act: ActDelete, Run: id})
		}
	}
	return removed, err
}

// Storage implements [spool.Remover]. A subject that does not see all runs gets the
// sums of its own; those of finished runs include their blobs.
func (b *backend) Storage(ctx context.Context) (spool.Storage, error) { return b.StorageBy(ctx, "") }

// StorageBy implements [spool.StorageGrouper], for a subject that sees all runs.
func (b *backend) StorageBy(ctx context.Context, by string) (spool.Storage, error) {
	if err := b.subject.Scopes.Require(Read); err != nil {
		return spool.Storage{}, b.deny(ActRead, "", err)
	}
	remover, ok := b.inner.(spool.Remover)
	if !ok {
		return spool.Storage{}, fmt.Errorf("describe storage: %w by this server", spool.ErrUnsupported)
	}
	if by != "" {
		if err := b.subject.Scopes.Require(Admin); err != nil {
			return spool.Storage{}, b.deny(ActRead, "", err)
		}
		grouper, ok := b.inner.(spool.StorageGrouper)
		if !ok {
			return spool.Storage{}, fmt.Errorf("group runs: %w by this server", spool.ErrUnsupported)
		}
		return grouper.StorageBy(ctx, by)
	}
	if b.subject.Scopes.Has(Admin) {
		return remover.Storage(ctx)
	}
	var s spool.Storage
	var finished []spool.RunID
	for info, err := range b.List(ctx, spool.Filter{}) {
		switch {
		case err != nil:
			return spool.Storage{}, err
		case info.State == spool.StateClosed:
			s.FinishedRuns++
			finished = append(finished, info.ID)
		default:
			s.LiveRuns++
			s.LiveBytes += info.Bytes
		}
	}
	all, err := remover.Remove(ctx, finished, true)
	s.FinishedBytes = all.Bytes
	return s, err
}
