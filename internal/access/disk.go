package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// diskEvery is how often the disk space of a subject's runs is added up.
const diskEvery = 10 * time.Second

// usage is what the log of one run, up to a seq, takes beside its output.
type usage struct {
	next  spool.Seq // the cursor
	data  int64     // payloads of events
	blobs map[spool.Digest]int64
}

// checkTurn returns an error if the runs of the subject have used up its disk
// space, so that no turn begins.
func (b *backend) checkTurn(ctx context.Context) error {
	if b.account == nil || b.subject.Quotas.DiskBytes == 0 {
		return nil
	}
	b.account.mu.Lock()
	defer b.account.mu.Unlock()
	_, err := b.diskLeft(ctx)
	var over *spool.StartError
	if errors.As(err, &over) {
		return fmt.Errorf("begin a turn: %w: %s", over.Err, over.Hint)
	}
	return err
}

// diskLeft returns how much disk space the runs of the subject may still take, or
// an error if there is none left. Callers hold the lock of the account.
func (b *backend) diskLeft(ctx context.Context) (int64, error) {
	if err := b.addUp(ctx); err != nil {
		return 0, err
	}
	limit := b.subject.Quotas.DiskBytes
	left := limit - b.account.disk
	if left <= 0 {
		return 0, overQuota(fmt.Sprintf("%d bytes of output and blobs on disk", b.account.disk), limit, b.subject,
			"delete runs, or wait until old ones are deleted", spool.ErrDenied)
	}
	return left, nil
}

// addUp finds out how much disk space the runs of the subject take: output,
// payloads of events, and blobs, each blob once. Callers hold the lock of the
// account.
func (b *backend) addUp(ctx context.Context) error {
	a := b.account
	if !a.diskAt.IsZero() && time.Since(a.diskAt) < diskEvery && a.disk < b.subject.Quotas.DiskBytes {
		return nil
	}
	var sum int64
	used := make(map[spool.RunID]*usage)
	for info, err := range b.inner.List(ctx, spool.Filter{Labels: map[string]string{LabelSubject: b.subject.Name}}) {
		if err != nil { // a run that cannot be read may be another subject's
			continue
		}
		sum += info.Bytes
		if info.Engine == spool.EngineProcess {
			continue // has output alone
		}
		u := a.used[info.ID]
		if u == nil {
			u = &usage{blobs: make(map[spool.Digest]int64)}
		}
		b.scan(ctx, &info, u)
		used[info.ID] = u
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	counted := make(map[spool.Digest]bool)
	for _, u := range used {
		sum += u.data
		for digest, size := range u.blobs {
			if !counted[digest] {
				counted[digest] = true
				sum += size
			}
		}
	}
	a.used, a.disk, a.diskAt = used, sum, time.Now()
	return nil
}

// scan adds the events of a run that are new to its usage. What it cannot read is
// read the next time.
func (b *backend) scan(ctx context.Context, info *spool.Info, u *usage) {
	for u.next < info.Last {
		page, err := b.inner.Read(ctx, info.ID, spool.Query{After: u.next, MaxBytes: record.BatchBytes})
		if err != nil || page.Next <= u.next {
			return
		}
		for i := range page.Events {
			e := &page.Events[i]
			u.data += int64(len(e.Data))
			if bytes.Contains(e.Data, []byte(`"blob"`)) {
				var v any
				if json.Unmarshal(e.Data, &v) == nil {
					u.addBlobs(v)
				}
			}
		}
		u.next = page.Next
	}
}

// addBlobs finds every [spool.Blob] in a JSON value.
func (u *usage) addBlobs(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			u.addBlobs(e)
		}
	case map[string]any:
		digest, _ := v["blob"].(string)
		if size, ok := v["size_bytes"].(float64); ok && digest != "" && size > 0 {
			u.blobs[spool.Digest(digest)] = int64(min(size, 1<<50))
		}
		for _, e := range v {
			u.addBlobs(e)
		}
	}
}
