package keeper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
)

// Servers and keepers of different versions follow runs together: a version before
// binary requests for updates knows the method only.
func TestFollowWithOtherVersions(t *testing.T) {
	for _, protocol := range []int{keeper.Protocol, 4} {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			dir := t.TempDir()
			serveHere(t, dir, "one")
			run, err := spool.Start(t.Context(), open(t, dir, "one"), spool.Spec{Argv: []string{"cat"}, Stdin: true})
			if err != nil {
				t.Fatal(err)
			}
			owners, err := host.Owners(dir)
			if err != nil || len(owners) != 1 {
				t.Fatal(owners, err)
			}
			other := open(t, dir, "other")
			if err := other.ConnectAs(t.Context(), protocol, owners[0].ID); err != nil {
				t.Fatal(err)
			}
			say := func(seq spool.Seq) {
				t.Helper()
				if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: fmt.Appendf(nil, "%d\n", seq)}); err != nil {
					t.Fatal(err)
				}
			}
			const lines = 20
			next := spool.Seq(1)
			say(next)
			for e, err := range other.Follow(t.Context(), run.ID(), 0) {
				if err != nil || e.Seq != next || e.Kind == spool.KindOutput && string(e.Bytes) != fmt.Sprintf("%d\n", next) {
					t.Fatalf("event %+v, want %d: %v", e, next, err)
				}
				if next++; next <= lines {
					say(next)
				} else if next == lines+1 {
					if err := run.Stdin(t.Context()).Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if next != lines+3 { // exited, closed
				t.Errorf("the log ended before event %d", next)
			}
		})
	}
}

// A reader that follows a run learns of its new name with the next event, and of
// everything else as well.
func TestUpdatesDescribeTheRun(t *testing.T) {
	dir := t.TempDir()
	serveHere(t, dir, "one")
	b := open(t, dir, "one")
	run, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"cat"}, Stdin: true, Labels: map[string]string{"a": "1", "b": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	started, err := run.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, dir, "one") // it knows the run from its files
	after := spool.Seq(0)
	for _, name := range []string{"", "", "first", "first", "second"} {
		if name != "" {
			if _, err := b.Rename(t.Context(), run.ID(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("x\n")}); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []spool.Backend{b, other} {
			page, err := reader.Read(t.Context(), run.ID(), spool.Query{After: after, Wait: time.Minute})
			if err != nil || len(page.Events) != 1 || page.Next != after+1 {
				t.Fatalf("after %d: %+v, %v", after, page, err)
			}
			if i := &page.Info; i.Name != name || i.Pid != started.Pid || len(i.Labels) != 2 || i.Last != after+1 || i.Bytes != 2*int64(after+1) {
				t.Errorf("event %d, with the name %q: %+v", after+1, name, i)
			}
		}
		after++
	}
}
