package host

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

var _ spool.Meter = (*Host)(nil)

// Measure implements [spool.Meter].
func (h *Host) Measure(_ context.Context, ids []spool.RunID) ([]spool.Resources, error) {
	infos := h.LiveRuns()
	if len(ids) > 0 {
		infos = infos[:0]
		for _, id := range ids {
			r, err := h.findExisting(id)
			if err != nil {
				return nil, err
			}
			infos = append(infos, r.Info())
		}
	}
	return h.opts.Measured(infos)
}

// Measured returns what the processes of runs use.
func (o *Options) Measured(infos []spool.Info) ([]spool.Resources, error) {
	if o.Measure == nil {
		return nil, fmt.Errorf("measure runs: %w", spool.ErrUnsupported)
	}
	var pids []int
	for _, info := range infos {
		if info.Pid > 0 && info.State != spool.StateClosed {
			pids = append(pids, info.Pid)
		}
	}
	now := time.Now().UTC()
	used, err := o.Measure(pids)
	if err != nil {
		return nil, fmt.Errorf("measure runs: %w", err)
	}
	var all []spool.Resources
	for _, info := range infos {
		r, ok := used[info.Pid]
		if !ok || info.State == spool.StateClosed {
			continue
		}
		r.Run, r.Time, r.Logged = info.ID, now, info.Bytes
		all = append(all, r)
	}
	return all, nil
}
