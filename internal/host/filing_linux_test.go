package host

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/polltest"
)

// TestNothingIsFiledBesideAnEarlierHost has a host of the layout before live in the
// state directory: it would not find runs that are filed, so none is until it ends.
func TestNothingIsFiledBesideAnEarlierHost(t *testing.T) {
	dir := t.TempDir()
	earlier, err := register(dir, Owner{ID: "earlier", Pid: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(Options{Dir: dir, FileAfter: time.Millisecond, Engines: map[string]NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if h.mayFile() {
		t.Error("runs may be filed beside a host of an earlier layout")
	}
	const n = 5
	for i := range n {
		run, err := spool.Start(t.Context(), h, spool.Spec{ID: spool.RunID(fmt.Sprintf("r%d", i)), Argv: []string{"sleep", "0.05"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	files := func(pattern string) int {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, "runs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if filed := files("??/*.seg"); filed > 0 {
		t.Errorf("%d runs were filed", filed)
	}
	if err := earlier.release(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the runs are filed", func() bool { return files("??/*.seg") == n && files("*.seg") == 0 })
}
