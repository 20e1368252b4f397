package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	state "github.com/spool-run/spool/internal/store"
)

// mirrorLease is the lease of nodes that copy runs.
const mirrorLease = "6s"

// mirrorNodes starts a store, and nodes that copy runs of each other. Other nodes reach the
// first one through a proxy.
func mirrorNodes(t *testing.T, names []string, more ...string) (nodes map[string]*machine, proxy *netcut.Proxy) {
	t.Helper()
	dir := t.TempDir()
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the store did not start")
	}
	port, err := servertest.FreePorts(30)
	if err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprint("127.0.0.1:", port)
	if proxy, err = netcut.NewProxy(listen); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	o := &outsideNodes{dir: dir, lease: mirrorLease, nats: nats.URL}
	nodes = make(map[string]*machine)
	for i, name := range names {
		args := append([]string{"--mirror", "1"}, more...)
		if i == 0 {
			args = append(args, "--cluster-listen", listen, "--cluster-advertise", proxy.Addr())
		}
		nodes[name] = o.node(t, name, args...)
	}
	for _, name := range names {
		for _, m := range nodes {
			m.awaitNode(t, name, "up")
		}
	}
	return nodes, proxy
}

// countUntil prints numbers until a file exists, and then ends.
func countUntil(id spool.RunID, end string) spool.Spec {
	spec := backendtest.Shell(fmt.Sprintf("i=0; while [ ! -e %s ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo done", end))
	spec.ID = id
	return spec
}

// awaitCopy waits until the description of a run satisfies a condition.
func awaitCopy(t *testing.T, c *client.Client, id spool.RunID, what string, ok func(i *spool.Info) bool) spool.Info {
	t.Helper()
	var info spool.Info
	polltest.Until(t, what, func() bool {
		var err error
		info, err = c.Stat(t.Context(), id)
		return err == nil && ok(&info)
	})
	return info
}

// onDisk reads the log of a run from a state directory.
func onDisk(t *testing.T, dir string, id spool.RunID) []spool.Event {
	t.Helper()
	s, err := state.Open(dir, state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var all []spool.Event
	for last, _ := j.Last(); len(all) == 0 || all[len(all)-1].Seq < last; {
		after := spool.Seq(0)
		if len(all) > 0 {
			after = all[len(all)-1].Seq
		}
		if all, err = j.Read(all, after, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// copyDir is where a node has the copy of a run.
func (m *machine) copyDir(id spool.RunID) string {
	return filepath.Join(m.state, "cluster", "mirrors", string(id))
}

// hasCopy reports whether a node has a copy of a run.
func (m *machine) hasCopy(id spool.RunID) bool {
	_, err := os.Stat(m.copyDir(id))
	return err == nil
}

// split returns the events of a log, a gap after them, and what was said at the end.
func split(t *testing.T, log []spool.Event) (prefix []spool.Event, gap *spool.Truncation, end []spool.Event) {
	t.Helper()
	for i, e := range log {
		switch {
		case e.Seq == 0:
			return prefix, gap, log[i:]
		case e.Kind == spool.KindTruncated && gap == nil:
			gap = new(spool.Truncation)
			if err := json.Unmarshal(e.Data, gap); err != nil || gap.To != e.Seq {
				t.Errorf("the gap is %+v, %v", e, err)
			}
		case gap != nil || e.Seq != spool.Seq(i+1):
			t.Fatalf("event %d is %+v", i, e)
		default:
			prefix = append(prefix, e)
		}
	}
	return prefix, gap, nil
}

// wantLost checks the end of a log whose machine is lost.
func wantLost(t *testing.T, what string, end []spool.Event) {
	t.Helper()
	if len(end) != 2 || end[0].Kind != spool.KindFailed || end[1].Kind != spool.KindClosed {
		t.Fatalf("%s: the end is %+v", what, end)
	}
	if outcome, ok := end[0].Outcome(); !ok || outcome.Kind != spool.Unknown || !strings.Contains(outcome.Reason, "node y") {
		t.Errorf("%s: the reader was told %v", what, outcome)
	}
}

// TestMirroredRunOutlivesItsMachine kills the machine of a run in the middle of its output,
// after its mirror was restarted and then cut off. All nodes read what the mirror has, as it
// is on the disk of the machine; are told of what is known to be gone, and that nobody
// knows the end. When the machine is back, its own log is read again.
func TestMirroredRunOutlivesItsMachine(t *testing.T) {
	t.Parallel()
	nodes, toY := mirrorNodes(t, []string{"y", "x", "z"})
	x, y, z := nodes["x"], nodes["y"], nodes["z"]
	c, local := x.dial(t), y.dial(t)
	dir := t.TempDir()
	var runs []spool.RunID // copied by x, and by z
	copier := make(map[spool.RunID]*machine)
	for i := 0; len(copier) < 2; i++ {
		id := spool.RunID(fmt.Sprint("run", i))
		backendtest.Start(t, c, on(y, countUntil(id, filepath.Join(dir, "end"))))
		info := awaitCopy(t, c, id, "a copy", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.Last > 5 })
		m := nodes[info.Mirror.Node]
		if m == nil || m == y {
			t.Fatalf("run %s is copied by node %q", id, info.Mirror.Node)
		}
		for _, other := range runs {
			if copier[other] == m {
				id = ""
			}
		}
		if id != "" {
			runs, copier[id] = append(runs, id), m
		}
	}
	// A node does not list what it copies as its own.
	for info, err := range c.List(t.Context(), spool.Filter{}) {
		if err != nil || info.Node != "y" || info.Mirror == nil {
			t.Errorf("the list has %+v, %v", info, err)
		}
	}

	// The server of a mirror is killed: it goes on where its copy ends.
	byZ := runs[0]
	if copier[byZ] != z {
		byZ = runs[1]
	}
	z.server.Kill()
	before := len(onDisk(t, z.copyDir(byZ), byZ))
	first, err := os.ReadFile(firstSegment(t, z.copyDir(byZ)))
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := local.Stat(t.Context(), byZ)
	if err != nil {
		t.Fatal(err)
	}
	awaitCopy(t, local, byZ, "a lag", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.LagMs > 1000 && i.Last > stuck.Last+10 })
	if out := spoolOutput(t, servertest.Binary(t), "", "--state", y.state, "cluster", "status"); !strings.Contains(out, "\nmirror ") || !strings.Contains(out, " behind, by up to ") {
		t.Errorf("the status is\n%s", out)
	}
	if text := y.get(t, "/metrics"); !strings.Contains(text, "spool_cluster_mirror_lag_seconds") || strings.Contains(text, "spool_cluster_mirror_lag_seconds 0\n") {
		t.Error("the metrics have no lag")
	}
	if err := z.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	awaitCopy(t, local, byZ, "the mirror again", func(i *spool.Info) bool { return i.Mirror != nil && int(i.Mirror.Last) > before+10 })
	if again, err := os.ReadFile(firstSegment(t, z.copyDir(byZ))); err != nil || !bytes.HasPrefix(again, first) {
		t.Errorf("the copy was begun anew: %v", err)
	}

	// The server of the run is killed, and its keeper goes on.
	y.server.Kill()
	if err := y.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	local = y.dial(t)
	for _, id := range runs {
		now, err := local.Stat(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		awaitCopy(t, local, id, "the copy after a restart", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.Last > now.Last })
	}

	// Nobody reaches the machine, which says to its mirrors what they miss; then it dies.
	toY.Refuse()
	toY.Cut()
	known := make(map[spool.RunID]spool.Seq) // what the mirrors were told
	lag := make(map[spool.RunID]int64)
	for _, id := range runs {
		info := awaitCopy(t, local, id, "a run that goes on", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.LagMs > 500 && i.Last > i.Mirror.Last+10 })
		known[id], lag[id] = info.Last, info.Mirror.LagMs
	}
	for _, id := range runs {
		awaitCopy(t, local, id, "a longer lag", func(i *spool.Info) bool { return i.Last > known[id]+10 && i.Mirror.LagMs > lag[id]+2500 })
	}
	y.die()
	toY.Admit()
	x.awaitNode(t, "y", "lost")
	z.awaitNode(t, "y", "lost")
	seen := make(map[spool.RunID][]spool.Event)
	for _, id := range runs {
		disk := onDisk(t, y.state, id)
		for _, m := range []*machine{x, z} {
			what := fmt.Sprintf("run %s, copied by %s, at %s", id, copier[id].name, m.name)
			c := m.dial(t)
			log := events(t, c, id)
			prefix, gap, end := split(t, log)
			wantLost(t, what, end)
			if len(prefix) < 10 || len(prefix) >= len(disk) {
				t.Fatalf("%s: %d events are read, and %d are on the disk", what, len(prefix), len(disk))
			}
			for i, e := range prefix {
				e.Run, disk[i].Run = "", ""
				if !reflect.DeepEqual(e, disk[i]) {
					t.Fatalf("%s: event %d is %+v, and on the disk %+v", what, i+1, e, disk[i])
				}
			}
			if gap == nil || int(gap.From) != len(prefix)+1 || gap.To < known[id] || int(gap.To) > len(disk) {
				t.Errorf("%s: after %d events, of which %d were known, the gap is %+v", what, len(prefix), known[id], gap)
			}
			info, err := c.Stat(t.Context(), id)
			if err != nil || info.State != spool.StateClosed || info.Outcome == nil || info.Outcome.Kind != spool.Unknown || info.Node != "y" || info.Mirror == nil || int(info.Mirror.Last) != len(prefix) || gap != nil && info.Last != gap.To {
				t.Errorf("%s: it is %+v, %v", what, info, err)
			}
			var pages []spool.Event
			for after := spool.Seq(0); ; {
				page, err := c.Read(t.Context(), id, spool.Query{After: after, MaxBytes: 2000})
				if err != nil {
					t.Fatal(err)
				}
				pages, after = append(pages, page.Events...), page.Next
				if page.End() {
					break
				}
			}
			if len(pages) != len(prefix)+1 || pages[len(pages)-1].Kind != spool.KindTruncated {
				t.Errorf("%s: its pages have %d events", what, len(pages))
			}
			// A reader that has seen some goes on after them.
			for e, err := range c.Follow(t.Context(), id, 5) {
				if err != nil || e.Seq != 6 {
					t.Errorf("%s: the first event after 5 is %+v, %v", what, e, err)
				}
				break
			}
			seen[id] = prefix
		}
	}

	// It comes back with its disk.
	if err := y.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	x.awaitNode(t, "y", "up")
	c = x.dial(t) // the other one followed the runs from their starts, and was told of the gap
	for _, id := range runs {
		polltest.Until(t, "the log of the machine", func() bool {
			info, err := c.Stat(t.Context(), id)
			return err == nil && info.Outcome != nil && !strings.Contains(info.Outcome.Reason, "lease")
		})
		log := events(t, c, id)
		if len(log) <= len(seen[id]) {
			t.Fatalf("run %s has %d events, and had %d", id, len(log), len(seen[id]))
		}
		for i, e := range log {
			if int(e.Seq) != i+1 || i < len(seen[id]) && !bytes.Equal(e.Bytes, seen[id][i].Bytes) {
				t.Fatalf("run %s: event %d is %+v", id, i+1, e)
			}
		}
	}
	// Its mirrors get the rest, and delete their copies when the runs are removed.
	for _, id := range runs {
		m := copier[id]
		polltest.Until(t, "the whole copy", func() bool {
			got, err := finished(m.copyDir(id), id)
			return err == nil && got
		})
		if !reflect.DeepEqual(onDisk(t, m.copyDir(id), id), onDisk(t, y.state, id)) {
			t.Errorf("the copy of run %s on node %s is not its log", id, m.name)
		}
	}
	if _, err := c.Remove(t.Context(), runs, false); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "copies of removed runs deleted", func() bool { return !copier[runs[0]].hasCopy(runs[0]) && !copier[runs[1]].hasCopy(runs[1]) })
}

// firstSegment is the first file of a copy.
func firstSegment(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "runs", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has %q, %v", dir, files, err)
	}
	return files[0]
}

// finished reports whether a state directory has the whole log of a run.
func finished(dir string, id spool.RunID) (bool, error) {
	s, err := state.Open(dir, state.Options{})
	if err != nil {
		return false, err
	}
	defer s.Close()
	j, err := s.Open(id)
	if err != nil {
		return false, err
	}
	defer j.Close()
	_, sealed := j.Last()
	return sealed, nil
}

// TestMirrorIsReplaced has the node that copies a run die: another one copies it. A node
// without room stops copying, and nothing else.
func TestMirrorIsReplaced(t *testing.T) {
	t.Parallel()
	nodes, _ := mirrorNodes(t, []string{"y", "x", "z"}, "--mirror-bytes", "200000")
	y := nodes["y"]
	c := y.dial(t)
	end := filepath.Join(t.TempDir(), "end")
	backendtest.Start(t, c, on(y, countUntil("run", end)))
	info := awaitCopy(t, c, "run", "a copy", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.Last > 5 })
	was := nodes[info.Mirror.Node]
	was.die()
	awaitCopy(t, c, "run", "another copy", func(i *spool.Info) bool {
		return i.Mirror != nil && i.Mirror.Node != was.name && i.Mirror.Last > 20
	})
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := nodes["x"]
	if was == other {
		other = nodes["z"]
	}
	polltest.Until(t, "the whole copy", func() bool {
		got, err := finished(other.copyDir("run"), "run")
		return err == nil && got
	})
	if !reflect.DeepEqual(onDisk(t, other.copyDir("run"), "run"), onDisk(t, y.state, "run")) {
		t.Error("the copy is not the log")
	}

	// Complete copies give way, and then there is no room.
	large := backendtest.Shell("i=0; while [ $i -lt 40 ]; do head -c 10000 /dev/zero | tr '\\0' x; i=$((i+1)); done; read x")
	large.ID, large.Stdin = "large", true
	r := backendtest.Start(t, c, on(y, large))
	awaitCopy(t, c, "large", "all of the output", func(i *spool.Info) bool { return i.Bytes == 400_000 })
	polltest.Until(t, "a copy without room", func() bool {
		out := spoolOutput(t, servertest.Binary(t), "", "--state", y.state, "cluster", "status")
		return strings.Contains(out, "; 1 without room;")
	})
	if other.hasCopy("run") {
		t.Error("a complete copy is kept where there is no room for all")
	}
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	if outcome, err := r.Wait(t.Context()); err != nil || outcome.Kind != spool.Exited {
		t.Errorf("the run whose copy has no room ends with %v, %v", outcome, err)
	}
	if info, err := c.Start(t.Context(), on(other, backendtest.Shell("true"))); err != nil || info.Node != other.name {
		t.Errorf("a start on the node without room for copies: %+v, %v", info, err)
	}
}

// TestMirrorOfALostDisk has the machine of a run come back without its disk: its mirror has
// all that there is of the run.
func TestMirrorOfALostDisk(t *testing.T) {
	t.Parallel()
	nodes, _ := mirrorNodes(t, []string{"y", "x", "z"})
	x, y := nodes["x"], nodes["y"]
	c := x.dial(t)
	backendtest.Start(t, c, on(y, countUntil("run", filepath.Join(t.TempDir(), "end"))))
	awaitCopy(t, c, "run", "a copy", func(i *spool.Info) bool { return i.Mirror != nil && i.Mirror.Last > 20 })
	y.die()
	x.awaitNode(t, "y", "lost")
	before, _, end := split(t, events(t, x.dial(t), "run"))
	wantLost(t, "lost", end)
	for _, dir := range []string{y.state, filepath.Join(y.state, "cluster")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := e.Name(); name != "cluster" && name != "key" && name != "cluster.json" {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := y.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	x.awaitNode(t, "y", "up")
	for _, m := range []*machine{x, y} {
		var info spool.Info
		polltest.Until(t, "the copy of a run that its node does not have", func() bool {
			var err error
			info, err = m.dial(t).Stat(t.Context(), "run")
			return err == nil && info.Outcome != nil && strings.Contains(info.Outcome.Reason, "no longer has its log")
		})
		prefix, _, end := split(t, events(t, m.dial(t), "run"))
		wantLost(t, "without its disk", end)
		if !reflect.DeepEqual(prefix, before) || len(prefix) < 20 || info.Last < prefix[len(prefix)-1].Seq {
			t.Errorf("at %s the log has %d events, and had %d: %+v", m.name, len(prefix), len(before), info)
		}
	}
}

// TestMirrorFlags checks what is refused.
func TestMirrorFlags(t *testing.T) {
	for _, args := range [][]string{{"--mirror", "2"}, {"--mirror", "-1"}, {"--mirror-bytes", "0"}} {
		cmd := exec.CommandContext(t.Context(), servertest.Binary(t), append([]string{"serve", "--state", t.TempDir(), "--cluster", "--node", "x"}, args...)...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), args[0]) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
