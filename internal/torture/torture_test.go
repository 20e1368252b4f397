package torture_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/torture"
)

// TestUpkeep kills a few processes that look after a state directory.
func TestUpkeep(t *testing.T) {
	report, err := torture.Upkeep(t.Context(), torture.UpkeepOptions{Seed: 1, Binary: servertest.Binary(t), Dir: t.TempDir(), Kills: 1})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	if report.Failed() || report.Killed() == 0 || report.Lists == 0 {
		t.Error("a promise was broken, or nothing happened")
	}
}

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// TestSpool runs a short torture of the real binary.
func TestSpool(t *testing.T) {
	report, err := torture.Run(t.Context(), torture.Options{
		Seed: 1, Binary: servertest.Binary(t), Dir: t.TempDir(),
		Runs: 25, Disconnects: 25, Kills: 3, // in a few seconds
		// On a busy machine. They pass only if something is broken.
		Duration: 5 * time.Minute, Grace: time.Minute, Hang: 2 * time.Minute,
		Faults:  []torture.Fault{torture.Cut, torture.Stall, torture.Worker, torture.Server, torture.Keeper, torture.Upgrade},
		Clients: 3, Natives: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	if report.Failed() {
		t.Error("a promise was broken")
	}
	if report.Disconnects == 0 || report.Kills == 0 || report.Runs == 0 {
		t.Error("no run or no fault happened")
	}
}
