package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/spool-run/spool"
)

// executes starts runs and waits for their ends in one call.
func executes(t *testing.T, b spool.Backend) {
	ctx := t.Context()
	// A child that holds the output open belongs to the run.
	spec := sh("echo one; (sleep 0.2; echo two) & exit 3")
	spec.ID = "executedonce"
	for range 2 { // the second time it has ended
		info, err := spool.Execute(ctx, b, spec)
		if err != nil {
			t.Fatal(err)
		}
		if info.ID != spec.ID || info.State != spool.StateClosed || info.Outcome == nil || *info.Outcome != (spool.Outcome{Kind: spool.Exited, Code: 3}) {
			t.Errorf("%+v, outcome %v", info, info.Outcome)
		}
		if out, err := spool.Attach(b, info.ID).Output(ctx); err != nil || string(out) != "one\ntwo\n" {
			t.Errorf("output %q, %v", out, err)
		}
	}

	missing := spool.Spec{Argv: []string{"no-such-program-here"}}
	var refused *spool.StartError
	if _, err := spool.Execute(ctx, b, missing); !errors.As(err, &refused) || refused.Reason != "not_found" {
		t.Errorf("a missing program: %v", err)
	}

	// The context ends the wait, not the run.
	spec = sh("read line; exit 4")
	spec.ID, spec.Stdin = "executedtwice", true
	waitCtx, cancel := context.WithCancelCause(ctx)
	enough := errors.New("waited enough")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := spool.Execute(waitCtx, b, spec); !errors.Is(err, enough) {
			t.Errorf("a wait that was ended: %v", err)
		}
	})
	run, err := spool.Start(ctx, b, spec) // the same run
	if err != nil {
		t.Fatal(err)
	}
	cancel(enough)
	waiting.Wait()
	if info, err := run.Info(ctx); err != nil || info.State != spool.StateRunning {
		t.Errorf("%+v, %v", info, err)
	}
	if err := run.Stdin(ctx).Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := spool.Execute(ctx, b, spec); err != nil || info.Outcome.ExitCode() != 4 {
		t.Errorf("%+v, %v", info, err)
	}

	// Many wait, and other requests do not wait for them.
	spec = sh("read line")
	spec.Stdin = true
	const many = 40
	for i := range many {
		spec := spec
		spec.ID = spool.RunID(fmt.Sprintf("executed%d", i))
		if _, err := b.Start(ctx, spec); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			if info, err := spool.Execute(ctx, b, spec); err != nil || info.State != spool.StateClosed {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
	for i := range many {
		if err := spool.Attach(b, spool.RunID(fmt.Sprintf("executed%d", i))).Stdin(ctx).Close(); err != nil {
			t.Fatal(err)
		}
	}
	waiting.Wait()
}
