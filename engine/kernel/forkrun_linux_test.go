package kernel_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/engine/kernel"
	"github.com/spool-run/spool/host"
)

// A handle forks its run, and both go on.
func TestRunForks(t *testing.T) {
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	run, err := spool.Start(ctx, h, spool.Spec{Engine: spool.EngineKernel})
	if err != nil {
		t.Fatal(err)
	}
	exec := func(r *spool.Run, code string) {
		t.Helper()
		turn, err := r.Exec(ctx, spool.Cell{Code: code})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := turn.Wait(ctx); err != nil || d.Outcome != spool.TurnOK {
			t.Fatalf("%q: %+v, %v", code, d, err)
		}
	}
	exec(run, "x = [1]")
	branch, err := run.Fork(ctx, spool.Spec{Name: "branch"})
	if err != nil {
		t.Fatal(err)
	}
	exec(branch, "x.append(2); assert x == [1, 2]")
	exec(run, "assert x == [1]")
	exec(run, "import threading; e = threading.Event(); threading.Thread(target=e.wait).start()")
	var se *spool.StartError
	if _, err := run.Fork(ctx, spool.Spec{}); !errors.As(err, &se) {
		t.Errorf("fork with a thread: %v", err)
	}
	exec(run, "e.set()")
	if info, err := branch.Info(ctx); err != nil || info.Name != "branch" || info.Engine != spool.EngineKernel {
		t.Errorf("%+v, %v", info, err)
	}
}
