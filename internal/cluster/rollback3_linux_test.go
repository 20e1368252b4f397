package cluster_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

var threeStores = flag.Bool("three-stores", false, "run TestThreeStoresGoBack")

// stores are three servers that hold every fact together.
type stores struct {
	dir     string
	base    int // of their ports
	servers []*natsd.Server
}

// start starts all servers. It reports false if a port was taken.
func (s *stores) start(t *testing.T) bool {
	t.Helper()
	var routes []string
	for i := range 3 {
		routes = append(routes, fmt.Sprint("127.0.0.1:", s.base+3+i))
	}
	for i := range 3 {
		server, err := natsd.Start(natsd.ServerOptions{Name: fmt.Sprint("s", i), Dir: filepath.Join(s.dir, fmt.Sprint(i)), Client: fmt.Sprint("127.0.0.1:", s.base+i), Route: routes[i], Routes: routes})
		if err != nil {
			t.Logf("server %d: %v", i, err)
			s.close()
			return false
		}
		s.servers = append(s.servers, server)
	}
	return true
}

func (s *stores) close() {
	for _, server := range s.servers {
		server.Close()
	}
	s.servers = nil
}

// address is where nodes connect, without the scheme of the first.
func (s *stores) address() string {
	return fmt.Sprintf("127.0.0.1:%d,nats://127.0.0.1:%d,nats://127.0.0.1:%d", s.base, s.base+1, s.base+2)
}

// replace ends all servers, does something to their files, and starts them again.
func (s *stores) replace(t *testing.T, do func() error) {
	t.Helper()
	s.close()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the store listens", func() bool { return s.start(t) })
}

// TestThreeStoresGoBack restores the disks of all three servers of the store to older
// copies. The servers agree, and serve what they have; the node notices it, and what
// was started since is not started again.
func TestThreeStoresGoBack(t *testing.T) {
	if !*threeStores {
		t.Skip("it waits for three elections: make torture-cluster runs it, with -three-stores")
	}
	s := &stores{dir: filepath.Join(t.TempDir(), "stores")}
	defer func() { s.close() }()
	polltest.Until(t, "three servers", func() (ok bool) {
		var err error
		if s.base, err = servertest.FreePorts(6); err != nil {
			t.Fatal(err)
		}
		return s.start(t)
	})
	older, witness := filepath.Join(t.TempDir(), "older"), filepath.Join(t.TempDir(), "witness")
	x := &machineRig{rig: &rig{address: s.address()}, name: "x", slots: 8, renew: time.Second, replicas: 3, dir: t.TempDir()}
	x.start(t)
	defer func() { x.close() }()
	x.begin(t, x.here("early", witness, "true"))
	await(t, x.Backend(), "early", spool.StateClosed)
	s.replace(t, func() error { return os.CopyFS(older, os.DirFS(s.dir)) })
	x.begin(t, x.here("late", witness, "true"))
	await(t, x.Backend(), "late", spool.StateClosed)
	s.replace(t, func() error {
		if err := os.RemoveAll(s.dir); err != nil {
			return err
		}
		return os.CopyFS(s.dir, os.DirFS(older))
	})
	polltest.Until(t, "the node knows that the store went back, and told it what it has", func() bool {
		st := x.Status()
		return st.Generation == 2 && st.Rebuild == nil
	})
	// A node that remembers nothing cannot start it either: its id is claimed again.
	y := &machineRig{rig: x.rig, name: "y", slots: 8, renew: time.Second, replicas: 3, dir: t.TempDir()}
	y.start(t)
	defer func() { y.close() }()
	polltest.Until(t, "an answer about the run", func() bool {
		_, err := y.Local().Start(t.Context(), y.here("late", witness, "true"))
		if !errors.Is(err, spool.ErrExists) && !errors.Is(err, cluster.ErrUndecided) {
			t.Fatalf("start again what the store had forgotten: %v", err)
		}
		return errors.Is(err, spool.ErrExists)
	})
	y.begin(t, y.here("new", witness, "true"))
	await(t, y.Backend(), "new", spool.StateClosed)
	if got := lines(t, witness); !slices.Equal(got, strings.Fields("early late new")) {
		t.Errorf("these were executed: %q", got)
	}
}
