package spool

import (
	"context"
	"errors"
)

// Executor is a [Backend] that starts a run and waits for its end in one request.
// The backends of packages local and client are Executors.
type Executor interface {
	// Execute is [Backend.Start] that describes the run once it is closed. The
	// context is for the wait: if it ends first, the run goes on, and a start that
	// has begun is not stopped. The description may come earlier, if the backend has
	// no room for one more that waits; the run is not closed then. The errors are those
	// of [Backend.Start].
	Execute(ctx context.Context, spec Spec) (Info, error)
}

// Execute starts a run and describes it once it is closed: after its process, and
// every process that holds its output open, has ended. It is [Start] and [Run.Wait]
// in one request, where the backend is an [Executor]. If ctx ends first, the run goes
// on, and [Start] with the same [Spec.ID] returns it.
func Execute(ctx context.Context, b Backend, spec Spec) (Info, error) {
	info, err := Info{}, ErrUnsupported
	if e, ok := b.(Executor); ok {
		info, err = e.Execute(ctx, spec)
	}
	if errors.Is(err, ErrUnsupported) {
		info, err = b.Start(ctx, spec)
	}
	if err != nil || info.State == StateClosed {
		return info, err
	}
	run := Attach(b, info.ID)
	if _, err := run.Wait(ctx); err != nil {
		return info, err
	}
	return run.Info(ctx)
}
