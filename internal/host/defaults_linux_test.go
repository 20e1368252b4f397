package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/store"
)

// Without options logs are kept for a week, and 16 GiB of them.
func TestDefaultRetention(t *testing.T) {
	h, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if r := h.opts.Retention; r.Age != 7*24*time.Hour || r.TotalBytes != 16<<30 || r.Runs != 0 || r.Compress != 10*time.Minute {
		t.Errorf("%+v", r)
	}
}

func TestNameIsBounded(t *testing.T) {
	h, err := Open(Options{Dir: t.TempDir(), Engines: map[string]NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	info, err := h.Start(t.Context(), spool.Spec{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", store.MaxName)
	if _, err := h.Start(t.Context(), spool.Spec{Argv: []string{"true"}, Name: name + "n"}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a start with a longer name: %v", err)
	}
	if _, err := h.Rename(t.Context(), info.ID, name); err != nil {
		t.Errorf("a name of %d bytes: %v", len(name), err)
	}
	if _, err := h.Rename(t.Context(), info.ID, name+"n"); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a longer one: %v", err)
	}
}
