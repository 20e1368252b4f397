package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
)

// Origin is what a copy is made of: the runs of the machine that has them.
type Origin interface {
	Stat(ctx context.Context, id spool.RunID) (spool.Info, error)
	Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error)
	record.Follower
}

// errDiffers says that a copy is not the beginning of the log.
var errDiffers = errors.New("the copy differs from the log")

// Copy copies a run, from where its copy ends, until the log is complete. It returns nil
// then. It is called again after a connection was lost. The error is [spool.ErrNotFound] if the
// machine does not have the run, and [ErrFull] if there is no room for more.
func (c *Copies) Copy(ctx context.Context, id spool.RunID, source Source, from Origin) error {
	info, err := from.Stat(ctx, id)
	if err != nil {
		return err
	}
	cp := c.get(id)
	if cp != nil && !cp.isOf(source, &info) {
		if err := c.Remove(id); err != nil {
			return err
		}
		cp = nil
	}
	if cp == nil {
		if cp, err = c.begin(source, info); err != nil {
			return err
		}
	}
	cp.writing.Lock()
	defer cp.writing.Unlock()
	if cp.isGone() {
		return fmt.Errorf("copy run %s: %w", id, errDiffers)
	}
	if _, complete := cp.journal.Last(); complete {
		return nil
	}
	err = cp.follow(ctx, from)
	if errors.Is(err, ErrFull) {
		cp.recount() // a part of what was counted was not written
	}
	if errors.Is(err, errDiffers) {
		c.opts.Log.Warn("a copy differs from the log of the run and is made anew", "run", id, "node", source.Node)
		err = errors.Join(err, cp.remove())
	}
	return err
}

// isOf reports whether the copy can be one of the log of a run. A machine that died may
// have lost the end of a log, and written another one.
func (p *Copy) isOf(source Source, info *spool.Info) bool {
	last, _ := p.journal.Last()
	have := p.journal.Info()
	return p.source == source && have.Created.Equal(info.Created) && (info.State != spool.StateClosed || info.Last >= last)
}

func (p *Copy) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// follow appends what the log has after the copy. The caller holds writing.
func (p *Copy) follow(ctx context.Context, from Origin) error {
	last, _ := p.journal.Last()
	// The last event that is there already comes again, so that a copy which is not
	// the beginning of the log is found out.
	var have []byte
	if last > 0 {
		var err error
		if have, _, err = p.journal.ReadRecords(nil, last-1, 1); err != nil {
			return err
		}
	}
	after, closed := last, false
	if len(have) > 0 {
		e, _, err := record.Decode(have)
		if err != nil {
			return err
		}
		after, closed = last-1, e.Kind == spool.KindClosed
	}
	for batch, err := range from.FollowRecords(ctx, p.id, after) {
		var b []byte
		if err == nil {
			b, err = batch.Load()
		}
		if err != nil {
			return err
		}
		if len(have) > 0 {
			if b, err = rest(b, have, last); err != nil {
				return err
			}
			have = nil
		}
		if len(b) > 0 {
			if closed, err = p.append(ctx, b, from); err != nil {
				return err
			}
		}
		batch.Drop()
	}
	if !closed {
		return fmt.Errorf("the log of run %s ended before its last event", p.id)
	}
	info, err := from.Stat(ctx, p.id)
	if err != nil {
		return err
	}
	info.Node, info.Mirror = p.source.Node, nil
	return full(p.journal.Seal(info))
}

// rest returns the records after the one that the copy has already.
func rest(b, have []byte, last spool.Seq) ([]byte, error) {
	if bytes.HasPrefix(b, have) {
		return b[len(have):], nil
	}
	e, n, err := record.Decode(b)
	switch {
	case err != nil:
		return nil, err
	case e.Kind != spool.KindTruncated:
		return nil, errDiffers
	case e.Seq == last: // it is gone there, and only it
		return b[n:], nil
	}
	return b, nil // a gap that ends later
}

// append appends records, after the blobs that their events refer to. It reports whether
// the last one closes the log.
func (p *Copy) append(ctx context.Context, b []byte, from Origin) (closed bool, err error) {
	if err := p.grow(int64(len(b))); err != nil {
		return false, err
	}
	for rest := b; len(rest) > 0; {
		e, n, err := record.Decode(rest)
		if err != nil {
			return false, err
		}
		rest, closed = rest[n:], e.Kind == spool.KindClosed
		store.EachDigest(e.Data, func(d spool.Digest) {
			if err == nil {
				err = p.blob(ctx, d, from)
			}
		})
		if err != nil {
			return false, err
		}
	}
	if err := p.journal.AppendRecords(b); err != nil {
		return false, full(err)
	}
	p.mu.Lock()
	p.changed = time.Now()
	p.mu.Unlock()
	return closed, nil
}

// blob copies a blob, unless it is there.
func (p *Copy) blob(ctx context.Context, d spool.Digest, from Origin) error {
	if r, err := p.store.Blob(d); err == nil {
		return r.Close()
	}
	r, err := from.Blob(ctx, p.id, d)
	if errors.Is(err, spool.ErrNotFound) {
		return nil // a text that looks like the name of a blob
	}
	if err != nil {
		return err
	}
	defer r.Close()
	blob, err := p.store.PutBlob("", &counted{r, p})
	if err == nil && blob.Digest != d {
		err = fmt.Errorf("blob %s arrived as %s", d, blob.Digest)
	}
	return full(err)
}

// counted counts what is read of a blob as bytes of a copy.
type counted struct {
	io.Reader
	copy *Copy
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		if err := r.copy.grow(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}
