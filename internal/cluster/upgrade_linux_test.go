package cluster_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
)

var (
	upgrades    = flag.Int("upgrades", 0, "number of upgrades of TestRollingUpgrade")
	upgradeFrom = flag.String("upgrade-from", "", "the `program` of the earlier version in TestRollingUpgrade; this one with another version number if empty")
)

// TestRollingUpgrade replaces the servers of three control nodes and a worker with those
// of another version, one after another, while clients start runs through all of them
// and follow runs on all of them. Two versions are side by side meanwhile. No start that
// was acknowledged is lost or executed twice, and readers see every event once.
func TestRollingUpgrade(t *testing.T) {
	for range *upgrades {
		u := newUpgrade(t)
		for i, m := range []*machine{u.n.w, u.n.b, u.n.c, u.n.a} {
			u.replace(m, u.n.all()[i%2+1])
			u.starts(5)
		}
		u.check()
	}
}

// upgrade is nodes of one version that get another one, and what was seen.
type upgrade struct {
	t       *testing.T
	n       *threeNodes
	dir     string
	to      string // the program of the other version
	stop    context.CancelFunc
	clients sync.WaitGroup
	readers sync.WaitGroup

	mu    sync.Mutex
	acked map[spool.RunID]bool
	long  map[spool.RunID]string // what readers saw
}

// versioned builds the program with a version.
func versioned(t *testing.T, dir, version string) string {
	t.Helper()
	bin := filepath.Join(dir, "spool-"+version)
	cmd := exec.Command("go", "build", "-o", bin, "-ldflags", "-X github.com/spool-run/spool/internal/cli.release="+version, "github.com/spool-run/spool/cmd/spool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build version %s: %v: %s", version, err, out)
	}
	return bin
}

func newUpgrade(t *testing.T) *upgrade {
	dir := t.TempDir()
	u := &upgrade{t: t, dir: dir, to: versioned(t, dir, "v2.0.0"), acked: make(map[spool.RunID]bool), long: make(map[spool.RunID]string)}
	from := *upgradeFrom
	if from == "" {
		from = versioned(t, dir, "v1.0.0")
	}
	for i := 0; u.n == nil; i++ {
		if u.n = startNodes(t, from); u.n == nil && i == 10 {
			t.Fatal("the nodes did not start")
		}
	}
	t.Cleanup(u.n.end)
	a := u.n.a.dial(t)
	ctx, stop := context.WithCancel(t.Context())
	u.stop = stop
	for i, m := range []*machine{u.n.b, u.n.c, u.n.w} {
		spec := on(m, backendtest.Shell(fmt.Sprintf("i=0; while [ ! -e %s/stop ]; do echo $i; i=$((i+1)); sleep 0.02; done", dir)))
		spec.ID = spool.RunID(fmt.Sprint("long", i))
		backendtest.Start(t, a, spec)
		through := u.n.all()[(i+3)%4] // not its own
		u.readers.Go(func() { u.follow(through, spec.ID) })
	}
	for i, m := range u.n.all() {
		u.clients.Go(func() { u.work(ctx, m, i) })
	}
	u.starts(5)
	return u
}

// dial connects to a node, which may be between two servers.
func (u *upgrade) dial(ctx context.Context, m *machine) *client.Client {
	return dialWhenUp(ctx, 5*time.Second, func() (url, token string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		return m.server.URL, m.token
	})
}

// follow reads a run to its end, with a cursor over all disconnects.
func (u *upgrade) follow(m *machine, id spool.RunID) {
	var text strings.Builder
	last, ended := spool.Seq(0), false
	for !ended && u.t.Context().Err() == nil {
		c := u.dial(u.t.Context(), m)
		if c == nil {
			break
		}
		for e, err := range c.Follow(u.t.Context(), id, last) {
			if err != nil || e.Seq == 0 { // the end of a connection
				break
			}
			if e.Seq != last+1 {
				u.t.Errorf("run %s: event %d after %d", id, e.Seq, last)
			}
			last, ended = e.Seq, e.Kind == spool.KindClosed
			text.Write(e.Bytes)
		}
		_ = c.Close()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.long[id] = text.String()
}

// work starts runs through a node until the context ends. A start without an answer is
// said again.
func (u *upgrade) work(ctx context.Context, m *machine, i int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for k := 0; ctx.Err() == nil; k++ {
		id := spool.RunID(fmt.Sprintf("run%dx%d", i, k))
		spec := backendtest.Shell(fmt.Sprintf("echo %s >> %s/witness-%s; echo done", id, u.dir, id))
		spec.ID = id
		if k%4 == 3 {
			spec.Labels = map[string]string{cluster.LabelPool: cluster.DefaultPool}
		}
		for ctx.Err() == nil {
			c := u.dial(ctx, m)
			if c == nil {
				return
			}
			_, err := c.Start(ctx, spec)
			_ = c.Close()
			if err == nil {
				u.mu.Lock()
				u.acked[id] = true
				u.mu.Unlock()
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// starts waits until so many more starts were acknowledged.
func (u *upgrade) starts(more int) {
	count := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.acked)
	}
	before := count()
	polltest.Until(u.t, "more starts", func() bool { return count() >= before+more })
}

// replace replaces the server of a node with one of the other version, and waits until
// every server of the store has all of it, as an operator does.
func (u *upgrade) replace(m, seen *machine) {
	u.t.Helper()
	if err := m.server.Stop(); err != nil {
		u.t.Fatal(err)
	}
	again := *m
	polltest.Until(u.t, "the new server of node "+m.name, func() bool { return again.start(u.to) == nil })
	u.mu.Lock()
	*m = again
	u.mu.Unlock()
	polltest.Until(u.t, "node "+m.name+" with the other version", func() bool {
		is := seen.list(u.t)[m.name]
		return is.State == "up" && is.Build == "v2.0.0"
	})
	polltest.Until(u.t, "a store on three servers", func() bool {
		out, err := exec.Command(u.to, "--state", m.state, "cluster", "status", "--json").Output()
		var s cluster.Status
		if err != nil || json.Unmarshal(out, &s) != nil || len(s.Store.Streams) == 0 || s.Generation != 1 {
			return false
		}
		for _, st := range s.Store.Streams {
			if st.Current != 3 {
				return false
			}
		}
		return true
	})
}

// check ends everything and compares it with what was acknowledged and seen.
func (u *upgrade) check() {
	t := u.t
	u.stop()
	u.clients.Wait()
	if err := os.WriteFile(filepath.Join(u.dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	u.readers.Wait()
	c := u.n.a.dial(t)
	for id, saw := range u.long {
		var want strings.Builder
		for i := range strings.Count(saw, "\n") {
			fmt.Fprintln(&want, i)
		}
		if log := textOf(events(t, c, id)); saw == "" || saw != want.String() || log != saw {
			t.Errorf("the reader of run %s saw %d bytes, and its log has %d", id, len(saw), len(log))
		}
	}
	for id := range u.acked {
		if info := await(t, c, id, spool.StateClosed); info.Outcome == nil || info.Outcome.Kind != spool.Exited || info.Outcome.Code != 0 {
			t.Errorf("run %s is %+v", id, info)
		}
		if got := lines(t, filepath.Join(u.dir, "witness-"+string(id))); len(got) != 1 {
			t.Errorf("run %s was executed %d times", id, len(got))
		}
	}
	t.Logf("%d starts acknowledged over the upgrade, %d runs read through it", len(u.acked), len(u.long))
}
