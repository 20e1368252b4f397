package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// executing has n callers wait for the end of one run, which ends with code 5 when there is
// a file at the path that it returns.
func executing(t *testing.T, c *client.Client, n int) (gate string, ends <-chan spool.Info) {
	t.Helper()
	gate = filepath.Join(t.TempDir(), "gate")
	spec := sh(`while ! [ -e "$0" ]; do sleep 0.05; done; exit 5`)
	spec.Argv = append(spec.Argv, gate)
	spec.ID = "executing"
	infos := make(chan spool.Info, n)
	var waiting sync.WaitGroup
	for range n {
		waiting.Go(func() {
			info, err := spool.Execute(t.Context(), c, spec)
			if err != nil {
				t.Error(err)
			}
			infos <- info
		})
	}
	t.Cleanup(waiting.Wait)
	polltest.Until(t, "the run", func() bool {
		info, err := c.Stat(t.Context(), spec.ID)
		return err == nil && info.State == spool.StateRunning
	})
	return gate, infos
}

func open(t *testing.T, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestManyWaitForAnEnd checks that requests that wait for the end of a run do not hold up
// others, also if there are more than a server has wait.
func TestManyWaitForAnEnd(t *testing.T) {
	c := dial(t, servertest.Start(t, t.TempDir()).URL, client.Options{})
	const n = 600
	gate, ends := executing(t, c, n)
	if info, err := spool.Execute(t.Context(), c, sh("exit 6")); err != nil || info.Outcome.ExitCode() != 6 {
		t.Errorf("another run: %+v, %v", info, err)
	}
	open(t, gate)
	for range n {
		if info := <-ends; info.State != spool.StateClosed || info.Outcome.ExitCode() != 5 {
			t.Fatalf("%+v", info)
		}
	}
}

// TestEndAfterLostConnection checks that who waits for an end learns of it, and nothing runs
// twice, if the connection is cut and if the server is killed.
func TestEndAfterLostConnection(t *testing.T) {
	state := t.TempDir()
	server := servertest.Start(t, state, "--listen", servertest.OwnAddress())
	proxy, url := proxied(t, server.URL)
	c := dial(t, url, client.Options{Reconnect: time.Minute})
	gate, ends := executing(t, c, 1)
	before, err := c.Stat(t.Context(), "executing")
	if err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	server.Kill()
	servertest.Start(t, state, "--listen", server.URL)
	open(t, gate)
	if info := <-ends; info.Outcome == nil || *info.Outcome != (spool.Outcome{Kind: spool.Exited, Code: 5}) || info.Pid != before.Pid {
		t.Errorf("%+v, outcome %v, want pid %d", info, info.Outcome, before.Pid)
	}
}

// TestEndAfterKeeperDeath checks that who waits for an end is told that it is unknown if the
// keeper dies.
func TestEndAfterKeeperDeath(t *testing.T) {
	state := t.TempDir()
	c := dial(t, servertest.Start(t, state).URL, client.Options{})
	_, ends := executing(t, c, 1)
	owners, err := host.Owners(state)
	if err != nil || len(owners) != 1 {
		t.Fatalf("owners %v, %v", owners, err)
	}
	if err := syscall.Kill(owners[0].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if info := <-ends; info.Outcome == nil || info.Outcome.Kind != spool.Unknown || !strings.Contains(info.Outcome.Reason, "died") {
		t.Errorf("%+v, outcome %v", info, info.Outcome)
	}
}
