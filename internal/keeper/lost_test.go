package keeper_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
)

// When a keeper dies after the exit of a run, later output of the run's children
// is lost. The log must say so.
func TestLostOutputIsReported(t *testing.T) {
	dir := stateDir(t)
	b := open(t, dir, "one")
	run, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"/bin/sh", "-c", "sleep 1000 & exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []spool.Kind
	var notice string
	for e, err := range run.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
		switch e.Kind {
		case spool.KindExited:
			owners, err := host.Owners(dir)
			if err != nil || len(owners) != 1 {
				t.Fatalf("owners %v, %v", owners, err)
			}
			if err := syscall.Kill(owners[0].Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		case spool.KindNotice:
			notice = string(e.Data)
		}
	}
	if want := []spool.Kind{spool.KindExited, spool.KindNotice, spool.KindClosed}; !slices.Equal(kinds, want) {
		t.Fatalf("events %v, want %v", kinds, want)
	}
	if !strings.Contains(notice, host.NoticeHostLost) {
		t.Errorf("the notice says %s", notice)
	}
	outcome, err := run.Wait(t.Context())
	if err != nil || outcome.Kind != spool.Exited || outcome.Code != 3 {
		t.Errorf("outcome %v, %v", outcome, err)
	}
}
