package keeper_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/keeper"
)

var _ access.Notifier = (*keeper.Backend)(nil)

// Who waits is told once of the next event, and of the end; not of what there is already,
// and not after stop.
func TestOnEvent(t *testing.T) {
	dir := t.TempDir()
	serveHere(t, dir, "one")
	b := open(t, dir, "one")
	run, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	// watch waits for events of the run, and reports whether there are some already.
	watch := func(b *keeper.Backend, after spool.Seq, told chan<- struct{}) (stop func()) {
		t.Helper()
		stop, err := b.OnEvent(t.Context(), run.ID(), after, func() { told <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	say := func() {
		t.Helper()
		if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("x\n")}); err != nil {
			t.Fatal(err)
		}
	}
	backends := []*keeper.Backend{b, open(t, dir, "one")} // which knows the run from its files
	told, stopped := make(chan struct{}, 100), make(chan struct{}, 100)
	for after := range spool.Seq(3) {
		for _, b := range backends {
			if watch(b, after, told) == nil {
				t.Fatalf("there is an event after %d", after)
			}
			watch(b, after, stopped)()
		}
		say()
		for range backends {
			<-told
		}
		for _, b := range backends {
			if watch(b, after, told) != nil {
				t.Errorf("there is no event after %d", after)
			}
		}
	}
	for _, b := range backends {
		watch(b, 3, told)
	}
	if err := run.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	for range backends {
		<-told // of exited
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watch(b, 1000, told) != nil {
		t.Error("one who waits for more than a closed run has would wait for ever")
	}
	if len(told)+len(stopped) > 0 {
		t.Errorf("%d were told too often, and %d after they had stopped", len(told), len(stopped))
	}
	if _, err := b.OnEvent(t.Context(), "nosuchrun", 0, nil); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}
}
