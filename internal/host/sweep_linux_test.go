package host

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/store"
)

// TestStartsGoOnBesideASweep stops a sweep at the places where it could hold what a
// start needs: while it deletes a log, and while it writes the index. Runs start, end
// and are listed there.
func TestStartsGoOnBesideASweep(t *testing.T) {
	for _, point := range []string{"store.sweep", "index.write"} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			fillStore(t, dir, 3*dropStep)
			h, err := Open(Options{Dir: dir, Retention: store.Retention{Runs: 10}, FileAfter: time.Hour, Engines: map[string]NewEngine{
				spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { h.Close() })
			reached, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			hit := 20
			if point == "index.write" {
				hit = 1
			}
			disable := failpoint.Enable(point, hit, func() error {
				close(reached)
				<-release
				return nil
			})
			defer disable()
			resume := func() { once.Do(func() { close(release) }) }
			defer resume()
			swept := make(chan struct{})
			go func() {
				defer close(swept)
				h.sweep()
			}()
			<-reached
			for i := range 3 {
				run, err := spool.Start(t.Context(), h, spool.Spec{ID: spool.RunID(fmt.Sprintf("beside%d", i)), Name: "beside", Argv: []string{"echo", "hello"}})
				if err != nil {
					t.Fatal(err)
				}
				if out, err := run.Output(t.Context()); err != nil || string(out) != "hello\n" {
					t.Errorf("%q, %v", out, err)
				}
			}
			n := 0
			for _, err := range h.List(t.Context(), spool.Filter{Name: "beside"}) {
				if n++; err != nil {
					t.Error(err)
				}
			}
			if n != 3 {
				t.Errorf("%d runs in the list", n)
			}
			resume()
			<-swept
			h.sweep() // what ended meanwhile
			n = 0
			for _, err := range h.List(t.Context(), spool.Filter{}) {
				if n++; err != nil {
					t.Error(err)
				}
			}
			if n != 10 {
				t.Errorf("%d runs are left", n)
			}
		})
	}
}

// fillStore files finished runs in a state directory.
func fillStore(t *testing.T, dir string, n int) {
	t.Helper()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour).UTC()
	for i := range n {
		info := spool.Info{ID: spool.RunID(fmt.Sprintf("old%d", i)), Engine: spool.EngineProcess, Created: at, State: spool.StateRunning}
		j, err := s.Create(info)
		if err != nil {
			t.Fatal(err)
		}
		info.State, info.Ended = spool.StateClosed, at.Add(time.Duration(i)*time.Millisecond)
		if err := j.Seal(info); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.File(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
