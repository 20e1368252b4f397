//go:build linux

package process

import (
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/leaktest"
)

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(m)
}

// modes are the ways trees can be held on this machine.
func modes(t *testing.T) []launch.TreeMode {
	list := []launch.TreeMode{launch.TreeWalk}
	e, err := New(Options{Tree: launch.TreeCgroup})
	if err != nil {
		t.Logf("no control groups here: %v", err)
		return list
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return append(list, launch.TreeCgroup)
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return e
}

func subject(o Options) enginetest.Subject {
	return enginetest.Subject{
		Engine: spool.EngineProcess,
		Open:   func(t *testing.T) engine.Engine { return open(t, o) },
		Spec: func(*testing.T) spool.Spec {
			return spool.Spec{Argv: []string{"cat"}, Env: map[string]string{"PATH": "/usr/bin:/bin"}, Stdin: true}
		},
		Without: map[string]string{enginetest.GroupTurns: "a process does one thing"},
	}
}

func TestConformance(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			enginetest.Run(t, subject(Options{Tree: mode}))
		})
	}
	t.Run("spares", func(t *testing.T) {
		enginetest.Run(t, subject(Options{Spares: 4}))
	})
}

// A session tells of its end once, whether it is asked before or after it.
func TestOnEnd(t *testing.T) {
	e := open(t, Options{})
	s, _ := start(t, e, spool.Spec{Argv: []string{"cat"}, Stdin: true})
	ended := make(chan struct{}, 2)
	s.(engine.Ender).OnEnd(func() { ended <- struct{}{} })
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	<-ended
	if o := s.Wait(); o.Code != 0 {
		t.Errorf("it ended with %+v", o)
	}
	s, _ = start(t, e, spool.Spec{Argv: []string{"true"}})
	s.Wait()
	s.(engine.Ender).OnEnd(func() { ended <- struct{}{} })
	<-ended
	if len(ended) > 0 {
		t.Error("it told of an end twice")
	}
}
