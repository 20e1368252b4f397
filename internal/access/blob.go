package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Blob implements [spool.Backend]. Blobs of all runs are in one place, so for a
// subject that does not see all runs an event of this run must refer to it.
func (b *backend) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	if err := b.enterRead(ctx, id); err != nil {
		return nil, err
	}
	r, err := b.inner.Blob(ctx, id, d)
	if err != nil {
		return nil, err
	}
	if !b.subject.Scopes.Has(Admin) {
		if err := b.refersTo(ctx, id, d); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if b.isPaced() {
		return &pacedReader{r, ctx, b}, nil
	}
	return r, nil
}

// refersTo returns [spool.ErrNotFound] if no event of a run refers to a blob. It
// remembers what it found: a client reads a large blob in many requests.
func (b *backend) refersTo(ctx context.Context, id spool.RunID, d spool.Digest) error {
	b.mu.Lock()
	known := b.blobs[blobOf{id, d}]
	b.mu.Unlock()
	if known {
		return nil
	}
	for q := (spool.Query{MaxBytes: record.BatchBytes}); ; {
		page, err := b.inner.Read(ctx, id, q)
		if err != nil {
			return err
		}
		for i := range page.Events {
			if bytes.Contains(page.Events[i].Data, []byte(d)) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(b.blobs) >= maxNoted {
					clear(b.blobs)
				}
				b.blobs[blobOf{id, d}] = true
				return nil
			}
		}
		if page.Next == q.After || page.Next >= page.Info.Last {
			return fmt.Errorf("blob %.80s of run %s: %w", d, id, spool.ErrNotFound)
		}
		q.After = page.Next
	}
}
