package keeper_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/polltest"
)

var sh, start = backendtest.Shell, backendtest.Start

func owners(t *testing.T, dir string) []host.Owner {
	t.Helper()
	o, err := host.Owners(dir)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// shortly is how long the keeper of a test about its end stays idle after its last
// connection.
const shortly = "500ms"

// untilOwners waits until n keepers live.
func untilOwners(t *testing.T, dir string, n int) {
	t.Helper()
	// Waiting for a lock to become free would take it.
	polltest.Until(t, fmt.Sprintf("%d keepers", n), func() bool { return len(owners(t, dir)) == n })
}

func TestRunsOutliveReader(t *testing.T) {
	dir := stateDir(t)
	first := open(t, dir, "one")
	spec := sh("echo before; read x; echo \"$x\"; exit 4")
	spec.Stdin = true
	id := start(t, first, spec).ID()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir, "one")
	r := spool.Attach(second, id)
	if _, err := r.Stdin(t.Context()).Write([]byte("after\n")); err != nil {
		t.Fatal(err)
	}
	out, err := r.Output(t.Context())
	if err != nil || string(out) != "before\nafter\n" {
		t.Errorf("output %q, %v", out, err)
	}
	if o, err := r.Wait(t.Context()); err != nil || o.Code != 4 {
		t.Errorf("outcome %v, %v", o, err)
	}
}

func TestKeeperEndsWhenIdle(t *testing.T) {
	t.Setenv(keeperIdle, shortly)
	dir := stateDir(t)
	b := open(t, dir, "one")
	if _, err := start(t, b, sh("true")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(owners(t, dir)); n != 1 {
		t.Fatalf("%d keepers", n)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	untilOwners(t, dir, 0)
	polltest.Until(t, "the end of the files of the keeper", func() bool { // a moment after it is unknown
		left, err := filepath.Glob(filepath.Join(dir, "hosts", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 0
	})
	// The next start starts a keeper again.
	again := open(t, dir, "one")
	if o, err := start(t, again, sh("exit 2")).Wait(t.Context()); err != nil || o.Code != 2 {
		t.Errorf("after that: %v, %v", o, err)
	}
}

func TestKeeperStaysWithLiveRun(t *testing.T) {
	t.Setenv(keeperIdle, shortly)
	dir := stateDir(t)
	b := open(t, dir, "one")
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	id := start(t, b, sh("read x < "+fifo+"; echo late")).ID()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A keeper that is left later ends meanwhile, because it has no live run.
	idle := stateDir(t)
	later := open(t, idle, "one")
	if _, err := start(t, later, sh("true")).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := later.Close(); err != nil {
		t.Fatal(err)
	}
	untilOwners(t, idle, 0)
	if n := len(owners(t, dir)); n != 1 {
		t.Fatalf("%d keepers with a live run", n)
	}
	if err := os.WriteFile(fifo, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	out, err := spool.Attach(open(t, dir, "one"), id).Output(t.Context())
	if err != nil || string(out) != "late\n" {
		t.Errorf("output %q, %v", out, err)
	}
}

// A program of another build starts its own keeper. It can still use the runs of
// the old keeper, which ends after its last run.
func TestNewBuildStartsKeeper(t *testing.T) {
	t.Setenv(keeperIdle, shortly)
	dir := stateDir(t)
	old := open(t, dir, "one")
	spec := sh("read x; exit 5")
	spec.Stdin = true
	before := start(t, old, spec).ID()
	newer := open(t, dir, "two")
	after := start(t, newer, spec).ID()
	a, errA := newer.Stat(t.Context(), before)
	b, errB := newer.Stat(t.Context(), after)
	if errA != nil || errB != nil || a.Owner == b.Owner || a.Owner == "" {
		t.Fatalf("owners %q and %q; %v, %v", a.Owner, b.Owner, errA, errB)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []spool.RunID{before, after} {
		r := spool.Attach(newer, id)
		if err := r.Stdin(t.Context()).Close(); err != nil {
			t.Fatal(err)
		}
		if o, err := r.Wait(t.Context()); err != nil || o.Code != 5 {
			t.Errorf("outcome %v, %v", o, err)
		}
	}
	if err := newer.Close(); err != nil {
		t.Fatal(err)
	}
	untilOwners(t, dir, 0)
}

func TestLeaseExpires(t *testing.T) {
	dir := stateDir(t)
	b := open(t, dir, "one")
	spec := sh("echo ready; exec sleep 1000")
	spec.Labels = map[string]string{"session": "s1"}
	leased := start(t, b, spec).ID()
	spec.Labels = nil
	free := start(t, b, spec).ID()
	if err := b.Lease(t.Context(), "session", "s1", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, dir, "one")
	if o, err := spool.Attach(next, leased).Wait(t.Context()); err != nil || o.Signal != "SIGKILL" {
		t.Errorf("leased: %v, %v", o, err)
	}
	if info, err := next.Stat(t.Context(), free); err != nil || info.State != spool.StateRunning {
		t.Errorf("not leased: %+v, %v", info, err)
	}
}

// TestHoldMustBeRepeated checks that runs end when a hold is not repeated in time, also
// if the connection of the server that had it stays.
func TestHoldMustBeRepeated(t *testing.T) {
	b := open(t, stateDir(t), "one")
	spec := sh("echo ready; exec sleep 1000")
	spec.Labels = map[string]string{"held": "true"}
	held := start(t, b, spec)
	spec.Labels = nil
	free := start(t, b, spec)
	for _, ttl := range []time.Duration{time.Hour, time.Millisecond} {
		if info, err := held.Info(t.Context()); err != nil || info.State != spool.StateRunning {
			t.Fatalf("held: %+v, %v", info, err)
		}
		if err := b.Hold(t.Context(), "held", "true", ttl); err != nil {
			t.Fatal(err)
		}
	}
	if o, err := held.Wait(t.Context()); err != nil || o.Signal != "SIGKILL" {
		t.Errorf("held: %v, %v", o, err)
	}
	if info, err := free.Info(t.Context()); err != nil || info.State != spool.StateRunning {
		t.Errorf("not held: %+v, %v", info, err)
	}
	// What would have to end at once is not started.
	spec.Labels = map[string]string{"held": "true"}
	if info, err := b.Start(t.Context(), spec); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("a start after a hold is over: %+v, %v", info, err)
	}
	if err := b.Hold(t.Context(), "held", "true", time.Hour); err != nil {
		t.Fatal(err)
	}
	start(t, b, spec)
}

func TestLeaseIsTakenOver(t *testing.T) {
	dir := stateDir(t)
	b := open(t, dir, "one")
	spec := sh("read x; exit 7")
	spec.Stdin, spec.Labels = true, map[string]string{"session": "s1"}
	id := start(t, b, spec).ID()
	if err := b.Lease(t.Context(), "session", "s1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, dir, "one")
	if held, err := next.Leased(t.Context(), "session", "s1"); err != nil || !held {
		t.Errorf("leased: %v, %v", held, err)
	}
	if err := next.Lease(t.Context(), "session", "s1", time.Hour); err != nil {
		t.Fatal(err)
	}
	r := spool.Attach(next, id)
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(t.Context()); err != nil || o.Code != 7 {
		t.Errorf("outcome %v, %v", o, err)
	}
	if err := next.Release(t.Context(), "session", "s1"); err != nil {
		t.Fatal(err)
	}
	if held, err := next.Leased(t.Context(), "session", "s1"); err != nil || held {
		t.Errorf("after the release: %v, %v", held, err)
	}
}

func TestSocketIsPrivate(t *testing.T) {
	dir := stateDir(t)
	start(t, open(t, dir, "one"), sh("exec sleep 1000"))
	o := owners(t, dir)
	if len(o) != 1 {
		t.Fatalf("owners %v", o)
	}
	info, err := os.Stat(strings.TrimPrefix(o[0].Address, "keeper:"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "hosts")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v", info.Mode(), err)
	}
}

// When a keeper is killed, a reader gets the end of its runs at once, their
// processes end, and their outcome is unknown.
func TestKilledKeeperIsSettled(t *testing.T) {
	dir := stateDir(t)
	b := open(t, dir, "one")
	r := start(t, b, sh("echo alive; setsid sleep 1000 & exec sleep 1000"))
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindOutput {
			if err := syscall.Kill(owners(t, dir)[0].Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o, err := r.Wait(t.Context()); err != nil || o.Kind != spool.Unknown {
		t.Errorf("outcome %v, %v", o, err)
	}
	if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err == nil {
		t.Error("a settled run accepts input")
	}
}

var _ spool.Backend = (*keeper.Backend)(nil)
