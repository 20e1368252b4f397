package cluster_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// TestGrow makes three control nodes of a machine that was the whole cluster. All of its
// runs are there, whatever node is asked, and none starts again.
func TestGrow(t *testing.T) {
	bin, dir := servertest.Binary(t), t.TempDir()
	nodes := make(map[string]*machine)
	var base int
	for _, name := range []string{"a", "b", "c"} {
		m := &machine{name: name, state: filepath.Join(dir, name)}
		nodes[name] = m
		t.Cleanup(func() {
			m.die()
			servertest.EndKeepers(t, m.state)
		})
	}
	a, b, c := nodes["a"], nodes["b"], nodes["c"]
	at := func(i int) string { return fmt.Sprint("127.0.0.1:", base+10*i) }
	serve := func(m *machine, listen string) error {
		m.args = []string{"serve", "--state", m.state, "--listen", "127.0.0.1:0", "--cluster", "--node", m.name, "--node-runs", "8", "--cluster-listen", listen, "--cluster-lease", lease}
		return m.start(bin)
	}
	spoolOutput(t, bin, "", "--state", a.state, "cluster", "init")
	if err := serve(a, "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	a.awaitNode(t, "a", "up")
	client := a.dial(t)
	witness := filepath.Join(dir, "witness")
	spec := func(id, then string) spool.Spec {
		s := backendtest.Shell("echo " + id + " >> " + witness + "; " + then)
		s.ID, s.Stdin = spool.RunID(id), true
		return s
	}
	backendtest.Start(t, client, spec("ended", "true"))
	await(t, client, "ended", spool.StateClosed)
	backendtest.Start(t, client, spec("live", "read x"))
	polltest.Until(t, "the live run", func() bool { return len(lines(t, witness)) == 2 })
	if out, err := exec.Command(bin, "--state", a.state, "cluster", "rebuild", "--control", "127.0.0.1:7777").CombinedOutput(); err == nil || !strings.Contains(string(out), "stop it first") {
		t.Errorf("a new store while the server runs: %s, %v", out, err)
	}
	_ = client.Close()
	a.server.Kill() // its keeper goes on

	// Another program may take a port before a node does.
	started := false
	for i := 0; !started; i++ {
		var err error
		if base, err = servertest.FreePorts(30); err != nil {
			t.Fatal(err)
		}
		token := spoolOutput(t, bin, "", "--state", a.state, "cluster", "rebuild", "--control", at(0)+","+at(1)+","+at(2))
		for _, m := range []*machine{b, c} {
			spoolOutput(t, bin, token, "--state", m.state, "cluster", "join")
		}
		errB, errC := serve(b, at(1)), error(nil)
		if errB == nil {
			errC = serve(c, at(2))
		}
		if started = errB == nil && errC == nil; !started {
			b.die()
			c.die()
			if i == 10 {
				t.Fatal(errB, errC)
			}
		}
	}
	if err := serve(a, at(0)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{b, c} {
		m.awaitNode(t, "a", "up")
		polltest.Until(t, "a complete store", func() bool { return strings.Contains(m.get(t, "/metrics"), "spool_cluster_rebuilding 0\n") })
	}
	out := spoolOutput(t, bin, "", "--state", b.state, "cluster", "status")
	if !strings.Contains(out, "generation 2;") {
		t.Errorf("the cluster is\n%s", out)
	}
	other := c.dial(t)
	for _, s := range []spool.Spec{spec("ended", "true"), spec("live", "read x")} {
		if info, err := other.Start(t.Context(), s); err != nil || info.Node != "a" {
			t.Errorf("the start of %s said again elsewhere: %+v, %v", s.ID, info, err)
		}
	}
	if err := spool.Attach(other, "live").Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	await(t, other, "live", spool.StateClosed)
	fresh := spec("fresh", "true")
	fresh.Labels = map[string]string{"place.node": "b"}
	backendtest.Start(t, other, fresh)
	await(t, other, "fresh", spool.StateClosed)
	if got := lines(t, witness); !slices.Equal(got, []string{"ended", "live", "fresh"}) {
		t.Errorf("these were executed: %q", got)
	}
}
