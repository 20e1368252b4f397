package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/mirror"
)

// hostConnection is a connection to a node in this process.
type hostConnection struct{ Backend }

// Close implements [connection]. The node goes on.
func (hostConnection) Close() error { return nil }

// TestCopiesThatAreNotNeeded checks which copies a node keeps: until the run was removed on
// its node or is in the archive. A node that is away, or has another disk, removed nothing.
func TestCopiesThatAreNotNeeded(t *testing.T) {
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	copies, err := mirror.Open(mirror.Options{Dir: t.TempDir(), Free: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer copies.Close()
	all := newMembers(nil)
	o := &Options{Name: "self", Log: slog.New(slog.DiscardHandler), Timing: NewTiming(time.Minute), connect: func(context.Context, string) (connection, error) { return hostConnection{h}, nil }}
	p := newPeers(o, all, nil, "")
	defer p.close()
	c := newCopying(o, copies, p, all, nil, &tasks{ctx: t.Context()})
	rev := uint64(0)
	owner := func(state nodeState, machine string) {
		rev++
		all.saw(nodeRecord{Name: "owner", ID: machine, State: state, Addr: "x"}, rev)
	}
	owner(nodeUp, "m")
	start := func() mirror.State {
		t.Helper()
		r := backendtest.Start(t, h, backendtest.Shell("echo one"))
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.begin("owner", r.ID())
		c.tasks.wg.Wait()
		s, ok := copies.Of(r.ID())
		if !ok || !s.Complete || s.Source != (mirror.Source{Node: "owner", Machine: "m"}) {
			t.Fatalf("the copy is %+v, %v", s, ok)
		}
		return s
	}
	needed := func(what string, s *mirror.State, want bool) {
		t.Helper()
		if got := c.isNeeded(t.Context(), s); got != want {
			t.Errorf("%s: it is needed: %v", what, got)
		}
	}
	s := start()
	needed("its node has the run", &s, true)
	archived := false
	c.archived = func(context.Context, spool.RunID) (bool, error) { return archived, nil }
	needed("it is not in the archive", &s, true)
	archived = true
	needed("it is in the archive", &s, false)
	c.archived = func(context.Context, spool.RunID) (bool, error) { return true, errors.New("away") }
	needed("the archive does not answer", &s, true)
	c.archived = nil
	if _, err := h.Remove(t.Context(), []spool.RunID{s.Run}, false); err != nil {
		t.Fatal(err)
	}
	owner(nodeLost, "m")
	needed("its node is lost", &s, true)
	owner(nodeUp, "other")
	needed("its node has another disk", &s, true)
	owner(nodeUp, "m")
	needed("its node has removed the run", &s, false)

	// What is copied while the run is removed goes at once.
	gone := start()
	if _, err := h.Remove(t.Context(), []spool.RunID{gone.Run}, false); err != nil {
		t.Fatal(err)
	}
	c.begin("owner", gone.Run)
	c.tasks.wg.Wait()
	if _, ok := copies.Of(gone.Run); ok {
		t.Error("the copy of a run that was removed is there")
	}
	if err := copies.Expire(time.Hour); err != nil || len(copies.All()) != 1 {
		t.Errorf("there are %d copies, %v", len(copies.All()), err)
	}
}
