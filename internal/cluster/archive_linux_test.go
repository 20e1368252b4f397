package cluster_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// TestArchiveInTheStore has a cluster keep its archive in its own store: a run of a node
// that is lost is read from another one.
func TestArchiveInTheStore(t *testing.T) {
	bin, dir := servertest.Binary(t), t.TempDir()
	base, err := servertest.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprint("127.0.0.1:", base)
	a, w := &machine{name: "a", state: filepath.Join(dir, "a")}, &machine{name: "w", state: filepath.Join(dir, "w")}
	token := spoolOutput(t, bin, "", "--state", a.state, "cluster", "init", "--control", at)
	spoolOutput(t, bin, token, "--state", w.state, "cluster", "join")
	for _, m := range []*machine{a, w} {
		listen := map[string]string{"a": at, "w": "127.0.0.1:0"}[m.name]
		m.args = []string{"serve", "--state", m.state, "--listen", "127.0.0.1:0", "--cluster", "--node", m.name, "--node-runs", "16",
			"--cluster-listen", listen, "--cluster-lease", "3s", "--archive", "cluster:?max-bytes=100000000"}
		if err := m.start(bin); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			m.die()
			servertest.EndKeepers(t, m.state)
		})
	}
	a.awaitNode(t, "w", "up")
	c := a.dial(t)
	run := backendtest.Start(t, c, on(w, backendtest.Shell("i=0; while [ $i -lt 99 ]; do echo line $i; i=$((i+1)); done; exit 3")))
	if outcome, err := run.Wait(t.Context()); err != nil || outcome.Code != 3 {
		t.Fatal(outcome, err)
	}
	want := events(t, c, run.ID())
	polltest.Until(t, "the run in the archive", func() bool {
		out := spoolOutput(t, bin, "", "--state", a.state, "--archive", "cluster:", "archive", "ls", "--json")
		return out != ""
	})
	w.die()
	a.awaitNode(t, "w", "lost")
	if got := events(t, c, run.ID()); !reflect.DeepEqual(got, want) {
		t.Errorf("the log has %d events, and had %d", len(got), len(want))
	}
}
