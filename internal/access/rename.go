package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
)

// Rename implements [spool.Renamer]. It needs the right to delete the run: both
// change what others find.
func (b *backend) Rename(ctx context.Context, id spool.RunID, name string) (spool.Info, error) {
	renamer, ok := b.inner.(spool.Renamer)
	if !ok {
		return spool.Info{}, fmt.Errorf("rename run: %w by this server", spool.ErrUnsupported)
	}
	info, err := b.enter(ctx, ActRename, Delete, id)
	if err == nil {
		err = b.checkChange(&info, ActRename)
	}
	if err != nil {
		return spool.Info{}, err
	}
	if info, err = renamer.Rename(ctx, id, name); err == nil {
		b.note(Entry{Act: ActRename, Run: id})
	}
	return info, err
}
