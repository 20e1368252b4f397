package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/servertest"
)

// connected returns how many connections the socket of a node has.
func (m *machine) connected(t *testing.T) int {
	t.Helper()
	path, err := cluster.SocketPath(m.state)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) == 8 && f[7] == path && f[5] == "03" { // that state is "connected"
			n++
		}
	}
	return n
}

// withoutSocket has a node that is not running have no socket: others connect with TLS.
func (m *machine) withoutSocket(t *testing.T) {
	t.Helper()
	path, err := cluster.SocketPath(m.state)
	if err == nil {
		err = os.Mkdir(path, 0o700) // which is in the way
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNearNodes checks that a node reads a run of another one of its machine over the socket
// of that one, and over TLS if the socket is gone.
func TestNearNodes(t *testing.T) {
	dir := t.TempDir()
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the store did not start")
	}
	o := &outsideNodes{dir: dir, lease: lease, nats: nats.URL}
	a, b := o.node(t, "a"), o.node(t, "b")
	a.awaitNode(t, "b", "up")
	read := func() string {
		t.Helper()
		r, err := spool.Start(t.Context(), a.dial(t), on(b, backendtest.Shell("seq 20000")))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for e, err := range r.Stream(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			out.Write(e.Bytes)
		}
		return out.String()
	}
	want := read()
	if !strings.HasSuffix(want, "\n20000\n") {
		t.Errorf("the output has %d bytes", len(want))
	}
	if b.connected(t) == 0 {
		t.Error("node a did not connect to the socket of node b")
	}
	b.die()
	path, err := cluster.SocketPath(b.state)
	if err == nil {
		err = os.Remove(path) // nobody listens there any more
	}
	if err != nil {
		t.Fatal(err)
	}
	b.withoutSocket(t)
	if err := b.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	a.awaitNode(t, "b", "up")
	if got := read(); got != want {
		t.Errorf("without the socket the output has %d bytes, want %d", len(got), len(want))
	}
	if n := b.connected(t); n != 0 {
		t.Errorf("the socket that is gone has %d connections", n)
	}
}
