package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// copyReader reads the copies of a node.
type copyReader interface {
	Stat(ctx context.Context, id spool.RunID) (spool.Info, error)
	Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error)
	Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error)
	record.Follower
}

// withCopy returns why a run cannot be read from its node, if another node has a copy. It is
// nil otherwise.
func withCopy(err error) *LostError {
	if lost := (*LostError)(nil); errors.As(err, &lost) && lost.mirror != "" {
		return lost
	}
	return nil
}

// atCopy calls do with the copies of the node that copies a run, as often as the connection
// is lost, until that node was fenced, too, or patience ends. Zero means that it has no end.
// The error is [spool.ErrNotFound] if there is no copy.
func (r *Router) atCopy(ctx context.Context, lost *LostError, patience time.Duration, do func(copyReader) error) error {
	if lost.mirror == r.self {
		return do(r.copies)
	}
	began := time.Now()
	for {
		changed := r.members.changes()
		p, err := r.mirrors.get(ctx, lost.mirror)
		if err == nil {
			if err = do(p); err == nil || !isCut(err) {
				return err
			}
			r.mirrors.drop(lost.mirror, p)
		}
		switch n, ok := r.members.get(lost.mirror); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.isClosed():
			return spool.ErrClosed
		case !ok || !n.holds() || patience > 0 && time.Since(began) > patience:
			return fmt.Errorf("node %s, which copied run %s, does not answer: %w: %w", lost.mirror, lost.Run, spool.ErrNotFound, err)
		}
		pause(ctx, retryEvery, changed)
	}
}

// statCopy describes a run whose node is lost from its copy.
func (r *Router) statCopy(ctx context.Context, lost *LostError) (info spool.Info, err error) {
	err = r.atCopy(ctx, lost, patience, func(c copyReader) (err error) {
		info, err = c.Stat(ctx, lost.Run)
		return err
	})
	if err == nil {
		info = lost.describeCopy(info)
	}
	return info, err
}

// describeCopy returns the description of a run whose node is lost and that has a copy.
func (e *LostError) describeCopy(have spool.Info) spool.Info {
	if isWhole(&have) {
		have.Node = e.Node
		return have
	}
	i := e.describe()
	i.Last, i.Bytes = max(i.Last, have.Last), max(i.Bytes, have.Bytes)
	i.Title, i.Mirror = have.Title, have.Mirror
	return i
}

// isWhole reports whether a copy has the whole log.
func isWhole(i *spool.Info) bool {
	return i.State == spool.StateClosed && i.Mirror != nil && i.Mirror.Last >= i.Last
}

// readCopy reads a page of the copy of a run whose node is lost.
func (r *Router) readCopy(ctx context.Context, lost *LostError, q spool.Query) (page spool.Page, err error) {
	err = r.atCopy(ctx, lost, patience, func(c copyReader) (err error) {
		page, err = c.Read(ctx, lost.Run, spool.Query{After: q.After, MaxBytes: q.MaxBytes})
		if err == nil && page.Failure != "" { // the end of the connection
			return &unreachableError{errors.New(page.Failure)}
		}
		return err
	})
	if err != nil {
		return page, err
	}
	whole := isWhole(&page.Info)
	page.Info = lost.describeCopy(page.Info)
	if whole || page.Info.Mirror != nil && page.Next < page.Info.Mirror.Last {
		return page, nil
	}
	if gap, ok := lost.gap(page.Next, page.Info.Last); ok {
		page.Events, page.Next = append(page.Events, gap), gap.Seq
	}
	page.Info.Last, page.Failure = page.Next, lost.Error()
	return page, nil
}

// gap returns the event that stands for events which are known to be gone: those after a
// cursor up to the last one of which anybody heard.
func (e *LostError) gap(after, last spool.Seq) (spool.Event, bool) {
	if last <= after {
		return spool.Event{}, false
	}
	data, err := json.Marshal(spool.Truncation{From: after + 1, To: last})
	if err != nil { // two integers always encode
		panic(err)
	}
	return spool.Event{Run: e.Run, Seq: last, Time: time.Now(), Kind: spool.KindTruncated, Data: data}, true
}

// followCopy passes on the records of the copy of a run whose node is lost, and tells of the
// gap after them. It returns nil at the end of a log, or if yield did not want more, and the
// error that lost is at the end of what is known.
func (r *Router) followCopy(ctx context.Context, lost *LostError, after spool.Seq, yield func(*record.Batch) bool) error {
	var info spool.Info
	left := false
	err := r.atCopy(ctx, lost, 0, func(c copyReader) (err error) {
		if info, err = c.Stat(ctx, lost.Run); err != nil {
			return err
		}
		for batch, err := range c.FollowRecords(ctx, lost.Run, after) {
			if err != nil {
				return err
			}
			records, err := batch.Load()
			if err == nil {
				after, _, err = record.Last(records, after)
			}
			if err != nil {
				return err
			}
			if left = !yield(batch); left {
				return nil
			}
		}
		return nil
	})
	if left || err == nil {
		return nil
	}
	if !errors.Is(err, spool.ErrLost) && !errors.Is(err, spool.ErrNotFound) {
		return err
	}
	last := lost.info.Last
	if info.ID != "" {
		last = max(last, info.Last)
	}
	// Without a copy nothing is said of what is missing, as without a mirror.
	if gap, ok := lost.gap(after, last); ok && info.ID != "" {
		b, err := record.Append(nil, &gap)
		if err != nil {
			return err
		}
		if batch := record.NewBatch(b); !yield(&batch) {
			return nil
		}
	}
	return lost
}

// followCopied is followCopy for events.
func (r *Router) followCopied(ctx context.Context, lost *LostError, after spool.Seq, yield func(spool.Event, error) bool) {
	left := false
	err := r.followCopy(ctx, lost, after, func(batch *record.Batch) bool {
		for e, err := range record.Events(lost.Run, func(one func(*record.Batch, error) bool) { one(batch, nil) }) {
			e.Bytes, e.Data = bytes.Clone(e.Bytes), bytes.Clone(e.Data)
			if left = !yield(e, err); left || err != nil {
				left = true
				return false
			}
		}
		return true
	})
	switch {
	case left || err == nil:
	case errors.Is(err, spool.ErrLost):
		r.followLost(lost, yield)
	default:
		yield(spool.Event{}, err)
	}
}
