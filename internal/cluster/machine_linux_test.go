package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// lease is the lease of the tests: a busy machine may stop a process for seconds.
const lease = "20s"

// machine is one node: a real server with its keeper.
type machine struct {
	name, state string
	args        []string
	server      *servertest.Server
	token       string
}

// dialWhenUp connects to a server that may be down now, and have another address when it is
// up. It returns nil if the context ends.
func dialWhenUp(ctx context.Context, patience time.Duration, address func() (url, token string)) *client.Client {
	for ctx.Err() == nil {
		url, token := address()
		dctx, cancel := context.WithTimeout(ctx, patience)
		c, err := client.Dial(dctx, url, client.Options{Token: token, Reconnect: -1})
		cancel()
		if err == nil {
			return c
		}
		_ = pause.For(ctx, 50*time.Millisecond) // the loop looks at the context
	}
	return nil
}

// threeNodes are three control nodes, and perhaps a worker that tests may kill.
type threeNodes struct {
	dir        string
	a, b, c, w *machine
	key        cluster.Key
	store      string // where workers connect
}

var (
	shared    *threeNodes
	startOnce sync.Once
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == natsRole {
		os.Exit(natsMain(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 3 && os.Args[1] == clockRole {
		os.Exit(clockMain(os.Args[2]))
	}
	code := servertest.Main(m)
	if shared != nil {
		shared.end()
	}
	os.Exit(leaktest.Code(code))
}

// nodes returns the nodes that all tests share.
func nodes(t *testing.T) *threeNodes {
	t.Helper()
	startOnce.Do(func() {
		// Another program may take a port before a node does.
		for range 10 {
			if shared = startNodes(t, servertest.Binary(t)); shared != nil {
				return
			}
		}
	})
	if shared == nil {
		t.Fatal("the nodes did not start")
	}
	return shared
}

// startNodes starts three control nodes and a worker. It returns nil if a port was taken
// meanwhile.
func startNodes(t *testing.T, bin string) *threeNodes {
	t.Helper()
	return startCluster(t, bin, lease, "a", "b", "c", "w")
}

// startCluster starts the nodes of these names, of which a, b and c are control nodes. It
// returns nil if a port was taken meanwhile.
func startCluster(t *testing.T, bin, lease string, names ...string) *threeNodes {
	t.Helper()
	dir, err := os.MkdirTemp("", "spool-cluster-")
	if err != nil {
		t.Fatal(err)
	}
	base, err := servertest.FreePorts(30)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprint("127.0.0.1:", base+10*i) }
	n := &threeNodes{dir: dir, store: fmt.Sprintf("tls://127.0.0.1:%d,tls://127.0.0.1:%d,tls://127.0.0.1:%d", base+1, base+11, base+21)}
	var token string
	for i, name := range names {
		m := &machine{name: name, state: filepath.Join(dir, name)}
		runs := "16"
		listen := at(i)
		switch name {
		case "a":
			runs = "0" // it answers for the others
			n.a = m
			token = spoolOutput(t, bin, "", "--state", m.state, "cluster", "init", "--control", at(0)+","+at(1)+","+at(2))
		case "b":
			n.b = m
		case "c":
			n.c = m
		case "w":
			n.w, listen = m, "127.0.0.1:0"
		}
		if name != "a" {
			spoolOutput(t, bin, token, "--state", m.state, "cluster", "join")
		}
		if name == "w" {
			m.withoutSocket(t) // so that all is also tested over TLS
		}
		m.args = []string{"serve", "--state", m.state, "--listen", "127.0.0.1:0", "--cluster", "--node", name, "--node-runs", runs, "--cluster-listen", listen,
			"--cluster-lease", lease, "--node-label", "kind=" + map[bool]string{true: "worker", false: "control"}[name == "w"], "--max-start-rate", "100000", "--max-request-rate", "100000", "--max-input-rate", "100000"}
	}
	member, err := cluster.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	n.key = member.Key
	for _, m := range n.all() {
		if err := m.start(bin); err != nil {
			t.Logf("node %s: %v", m.name, err)
			n.end()
			return nil
		}
	}
	for _, m := range n.all() {
		n.await(t, m, "up")
	}
	return n
}

// all are the nodes that there are.
func (n *threeNodes) all() []*machine {
	return slices.DeleteFunc([]*machine{n.a, n.b, n.c, n.w}, func(m *machine) bool { return m == nil })
}

// spoolOutput runs a command.
func spoolOutput(t *testing.T, bin, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("spool %q: %v: %s", args, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// start starts the server of a node.
func (m *machine) start(bin string) error {
	s, err := servertest.StartCommand(context.Background(), bin, m.args...)
	if err != nil {
		return err
	}
	m.server = s
	token, err := os.ReadFile(filepath.Join(m.state, "server-token"))
	m.token = strings.TrimSpace(string(token))
	return err
}

// die ends everything that would end with the machine.
func (m *machine) die() {
	if m.server != nil {
		m.server.Kill()
	}
	for _, pid := range m.keepers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// keepers are the keepers of the machine.
func (m *machine) keepers() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(line, []byte("\x00keeper-role\x00-state\x00"+m.state+"\x00")) {
			var pid int
			if _, err := fmt.Sscan(filepath.Base(filepath.Dir(f)), &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// end ends all nodes and what they run.
func (n *threeNodes) end() {
	for _, m := range n.all() {
		m.die()
	}
	polltest.Holds(func() bool { // keepers may be just starting
		left := 0
		for _, m := range n.all() {
			left += len(m.keepers())
			m.die()
		}
		return left == 0 && os.RemoveAll(n.dir) == nil
	})
}

// dial connects to a node as a user does.
func (m *machine) dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), m.server.URL, client.Options{Token: m.token, Reconnect: 5 * time.Minute, Dial: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// list asks a node for all nodes, over HTTP.
func (m *machine) list(t *testing.T) map[string]spool.Node {
	t.Helper()
	var list struct{ Nodes []spool.Node }
	if err := json.Unmarshal([]byte(m.get(t, "/v1/nodes")), &list); err != nil {
		t.Fatal(err)
	}
	nodes := make(map[string]spool.Node)
	for _, n := range list.Nodes {
		nodes[n.Name] = n
	}
	return nodes
}

// await waits until node a sees a node in a state.
func (n *threeNodes) await(t *testing.T, m *machine, state string) spool.Node {
	t.Helper()
	var is spool.Node
	polltest.Until(t, "node "+m.name+" "+state, func() bool {
		is = n.a.list(t)[m.name]
		return is.State == state
	})
	return is
}

// wipe removes all runs and what the store knows of them, so that a test begins with
// nothing.
func (n *threeNodes) wipe(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, n.a.server.URL, client.Options{Token: n.a.token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		var ids []spool.RunID
		for info, err := range c.List(ctx, spool.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, info.ID)
			if info.State != spool.StateClosed {
				run := spool.Attach(c, info.ID)
				if err := run.Kill(ctx); err != nil {
					t.Fatal(err)
				}
				if _, err := run.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(ids) == 0 {
			break
		}
		if _, err := c.Remove(ctx, ids, false); err != nil {
			t.Fatal(err)
		}
	}
	config, err := n.key.TLS("test")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(n.store, nats.Secure(config))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, "SPOOL_RUNS")
	if err != nil {
		t.Fatal(err)
	}
	// The nodes are done with a run when the store has its end.
	polltest.Until(t, "the ends of all runs in the store", func() bool { return !hasOpen(t, s) })
	if err := s.Purge(ctx); err != nil {
		t.Fatal(err)
	}
}

// hasOpen reports whether the store has a run that has not ended.
func hasOpen(t *testing.T, s jetstream.Stream) bool {
	t.Helper()
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("spool.v1.run.>"))
	if err != nil {
		t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		m, err := s.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			continue // it left
		}
		var rec struct{ State string }
		if err := json.Unmarshal(m.Data, &rec); err != nil {
			t.Fatal(err)
		}
		if rec.State == "claimed" || rec.State == "held" {
			return true
		}
	}
	return false
}
