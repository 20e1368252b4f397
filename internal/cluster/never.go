package cluster

import (
	"fmt"
	"slices"

	"github.com/spool-run/spool"
)

// neverError says that a run left the queue and was never started.
type neverError struct{ info spool.Info }

func (e *neverError) Error() string {
	return fmt.Sprintf("run %s was never started: %s", e.info.ID, e.info.Outcome.Reason)
}

// Is makes it the end of a log, and of a run.
func (e *neverError) Is(target error) bool {
	return target == spool.ErrLost || target == spool.ErrEnded
}

// same answers a repeated submit.
func (e *neverError) same(spec *spool.Spec) (spool.Info, error) {
	same := recordInfo(&spool.Info{Argv: spec.Argv})
	if !isQueued(spec) || !slices.Equal(e.info.Argv, same.Argv) {
		return spool.Info{}, fmt.Errorf("start run %s: %w: %w", spec.ID, e, spool.ErrExists)
	}
	return e.info, nil
}

// never returns a [*neverError] if a record is that of a run that left the queue.
func (r *runRecord) never() error {
	if r.Node != "" || r.State != runClosed || r.Info.Outcome == nil {
		return nil
	}
	return &neverError{r.Info}
}

// followNever tells a reader how a run ended that has no log.
func followNever(e *neverError, yield func(spool.Event, error) bool) {
	failed := e.info.Outcome.Event()
	failed.Run, failed.Time = e.info.ID, e.info.Ended
	if yield(failed, nil) {
		yield(spool.Event{Run: e.info.ID, Time: failed.Time, Kind: spool.KindClosed}, nil)
	}
}
