package cluster_test

import (
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// get asks a node over HTTP.
func (m *machine) get(t *testing.T, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+m.token)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", path, resp.Status, err, b)
	}
	return string(b)
}

// TestNodesSayWhatTheyHave checks that every node knows what the others have, and tells
// it over HTTP, to the command and in its metrics.
func TestNodesSayWhatTheyHave(t *testing.T) {
	n := nodes(t)
	w := n.await(t, n.w, "up")
	if w.MemoryBytes <= 0 || w.MemoryFreeBytes <= 0 || w.MemoryFreeBytes > w.MemoryBytes || w.Cores != runtime.NumCPU() {
		t.Errorf("node w has %d of %d bytes of memory free and %d cores", w.MemoryFreeBytes, w.MemoryBytes, w.Cores)
	}
	if !slices.Contains(w.Engines, "process") || !slices.Contains(w.Engines, "sandbox") {
		t.Errorf("node w has the engines %v", w.Engines)
	}
	out := spoolOutput(t, servertest.Binary(t), "", "--state", n.b.state, "cluster", "nodes")
	if !strings.Contains(out, "ENGINES") || !strings.Contains(out, strings.Join(w.Engines, ",")) {
		t.Errorf("the nodes are\n%s", out)
	}
	for _, want := range []string{"spool_node_lease 1\n", "spool_cluster_nodes_up 4\n", "spool_cluster_nodes_lost 0\n", "spool_cluster_slots 48\n", "spool_cluster_store_connected 1\n", "spool_node_memory_bytes "} {
		polltest.Until(t, "metrics with "+strings.TrimSpace(want), func() bool { return strings.Contains(n.b.get(t, "/metrics"), want) })
	}
}
