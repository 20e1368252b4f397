package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
)

// Stat implements [spool.Backend].
func (b *Backend) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	m, err := b.existing(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	return m.stat(ctx)
}

// Describe returns what does not change about a run, such as its labels, without
// asking its keeper. The rest may be out of date.
func (b *Backend) Describe(ctx context.Context, id spool.RunID) (spool.Info, error) {
	m, err := b.mirrorOf(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	return m.description(), nil
}

// List implements [spool.Backend].
func (b *Backend) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.Check(); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		if b.isClosed() {
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		// The keepers know all live runs. The files do not: a run may have
		// no file yet, or one that was not written to since f.Since.
		all, err := b.live(ctx)
		if err != nil {
			yield(spool.Info{}, err)
			return
		}
		// A run may have ended since its files were read: match the fields
		// that do not change first, and then its present state.
		constant := f
		constant.Live, constant.State, constant.Since, constant.Waiting = false, "", time.Time{}, false
		// A run that has ended while its keeper still writes the end of its log
		// may have another name by now, which only the files tell.
		all = slices.DeleteFunc(all, func(info spool.Info) bool { return info.State == spool.StateClosed })
		known := make(map[spool.RunID]bool, len(all))
		for _, info := range all {
			known[info.ID] = true
		}
		all = slices.DeleteFunc(all, func(info spool.Info) bool { return !constant.Match(&info) })
		slices.SortFunc(all, func(a, b spool.Info) int { return f.Compare(&a, &b) })
		listed := 0
		list := func(info spool.Info) (more bool) {
			if info.State != spool.StateClosed && !known[info.ID] {
				if now, err := b.Stat(ctx, info.ID); err == nil {
					info = now
				}
			}
			if !f.Match(&info) {
				return true
			}
			listed++
			return yield(info, nil) && listed != f.Limit
		}
		constant.Since = f.Since // of a run that has not ended it selects all
		stored := b.store.Select(constant)
		if f.Live || f.Waiting || f.State != "" && f.State != spool.StateClosed {
			stored = func(func(spool.Info, error) bool) {}
		}
		for info, err := range host.MergeRuns(&f, all, known, stored) {
			switch {
			case ctx.Err() != nil:
				yield(spool.Info{}, context.Cause(ctx))
				return
			case err != nil:
				if !yield(info, err) {
					return
				}
			case !list(info):
				return
			}
		}
	}
}

// liveTime is how long live asks again because a keeper ends meanwhile: on a busy
// machine a keeper may be known for a while after it closed its socket.
const liveTime = 5 * time.Second

// live asks the keepers for their live runs. It first settles the runs of
// keepers that died: their files say then that they have ended.
func (b *Backend) live(ctx context.Context) ([]spool.Info, error) {
	for began := time.Now(); ; {
		if err := host.Settle(b.opts.Host); err != nil {
			return nil, err
		}
		var all []spool.Info
		gone, err := b.callAll(ctx, methodLive, struct{}{}, func(raw json.RawMessage) {
			var r liveResult
			if json.Unmarshal(raw, &r) == nil {
				all = append(all, r.Runs...)
			}
		})
		if err != nil || gone == 0 {
			return all, err
		}
		if time.Since(began) > liveTime {
			return nil, fmt.Errorf("list live runs of %s: a keeper does not answer", b.opts.Dir)
		}
		if err := pause.For(ctx, retryAfter); err != nil {
			return nil, err
		}
	}
}
