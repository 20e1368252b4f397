//go:build linux

package process

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestConformance(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) engine.Engine { return open(t, Options{Tree: mode}) })
		})
	}
	t.Run("spares", func(t *testing.T) {
		enginetest.Run(t, func(t *testing.T) engine.Engine { return open(t, Options{Spares: 4}) })
	})
}
