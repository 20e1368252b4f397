package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
)

// relayRig is a relay, r, with a real listener, and nodes that it knows: b, which echoes what
// it gets at its address; n, which has none; and g, which has left.
type relayRig struct {
	t     *testing.T
	key   Key
	relay *relay
	addr  string // of the relay
	all   *members
}

func newRelayRig(t *testing.T, tunnels, parked int) *relayRig {
	return newWatchfulRig(t, tunnels, parked, parkEvery)
}

// newWatchfulRig is newRelayRig with another time between questions.
func newWatchfulRig(t *testing.T, tunnels, parked int, every time.Duration) *relayRig {
	leaktest.Check(t)
	g := &relayRig{t: t, key: NewKey(), all: newMembers(nil)}
	g.relay = newRelay(&Options{Name: "r", Tunnels: tunnels, Parked: parked}, g.all)
	g.relay.every = every
	s := httptest.NewUnstartedServer(g.relay.handler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = g.config("r")
	s.StartTLS()
	t.Cleanup(func() {
		g.relay.close()
		s.Close()
	})
	g.addr = s.Listener.Addr().String()
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := b.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = b.Close()
		<-ended
	})
	for i, rec := range []nodeRecord{
		{Name: "r", State: nodeUp, Addr: g.addr},
		{Name: "b", State: nodeUp, Addr: b.Addr().String()},
		{Name: "n", State: nodeUp, Relays: []string{"r"}},
		{Name: "g", State: nodeGone, Addr: b.Addr().String()},
	} {
		g.all.saw(rec, uint64(i+1))
	}
	return g
}

// config returns the TLS configuration of a node.
func (g *relayRig) config(node string) *tls.Config {
	g.t.Helper()
	c, err := g.key.TLS(node)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// ask asks the relay as node a.
func (g *relayRig) ask(path string) (net.Conn, error) {
	return askRelay(g.t.Context(), g.config("a"), g.addr, path)
}

// echoes checks that what is written to a connection comes back.
func (g *relayRig) echoes(c net.Conn) {
	g.t.Helper()
	want := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	go func() { _, _ = c.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		g.t.Errorf("through the tunnel came something else: %v", err)
	}
}

// TestRelayNamesOnly checks to what a relay connects: to nodes that it knows, by their
// names, and to nothing else.
func TestRelayNamesOnly(t *testing.T) {
	g := newRelayRig(t, 4, 1)
	for _, tt := range []struct{ node, refusal string }{
		{"b", ""},
		{"r", `relays to no node "r"`}, // itself
		{"g", `relays to no node "g"`},
		{"nobody", `relays to no node "nobody"`},
		{g.addr, "relays to no node"},
		{"127.0.0.1:22", "relays to no node"},
		{"b/../r", "307"},
	} {
		c, err := g.ask(relayPath + tt.node)
		if tt.refusal == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.node, err)
				continue
			}
			g.echoes(c)
			cut(c)
		} else if err == nil || !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("%s: %v", tt.node, err)
		}
	}
	if n := g.relay.bytes.Load(); n < 2*128<<10 {
		t.Errorf("%d bytes were counted", n)
	}
}

// TestRelayIsForNodes checks that nobody without a certificate of the cluster gets
// through, and that a handler without TLS answers nobody.
func TestRelayIsForNodes(t *testing.T) {
	g := newRelayRig(t, 4, 1)
	bare := g.config("a")
	bare.Certificates = nil
	other, err := NewKey().TLS("a")
	if err != nil {
		t.Fatal(err)
	}
	other.RootCAs = bare.RootCAs
	for what, config := range map[string]*tls.Config{"no certificate": bare, "a certificate of another cluster": other} {
		for _, path := range []string{relayPath + "b", parkPath} {
			if c, err := askRelay(t.Context(), config, g.addr, path); err == nil {
				t.Errorf("with %s %s was answered", what, path)
				cut(c)
			}
		}
	}
	for _, path := range []string{relayPath + "b", parkPath} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Authorization", "Bearer token")
		g.relay.handler().ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("without TLS %s is answered %d", path, w.Code)
		}
	}
}

// TestTunnelsAreBounded checks that a relay takes so many connections and no more, and
// that one that ends makes room.
func TestTunnelsAreBounded(t *testing.T) {
	g := newRelayRig(t, 2, 1)
	var open []net.Conn
	for range 2 {
		c, err := g.ask(relayPath + "b")
		if err != nil {
			t.Fatal(err)
		}
		defer cut(c)
		g.echoes(c)
		open = append(open, c)
	}
	if _, err := g.ask(relayPath + "b"); err == nil || !strings.Contains(err.Error(), "takes no more") {
		t.Errorf("a third tunnel: %v", err)
	}
	if s := g.relay.status(); s.Tunnels != 2 {
		t.Errorf("the relay has %+v", s)
	}
	cut(open[0])
	for {
		c, err := g.ask(relayPath + "b")
		if err == nil {
			g.echoes(c)
			cut(c)
			break
		}
		if !strings.Contains(err.Error(), "takes no more") {
			t.Fatal(err)
		}
	}
	none := newRelayRig(t, -1, 1)
	if _, err := none.ask(relayPath + "b"); err == nil {
		t.Error("a node that relays nothing relays")
	}
	if _, err := askRelay(t.Context(), none.config("n"), none.addr, parkPath); err == nil {
		t.Error("a node that relays nothing keeps connections")
	}
}

// park keeps connections of node n at the relay until the test ends.
func (g *relayRig) park(each int) (*parking, *parkListener) {
	k := newParking(&Options{Name: "n", TLS: g.config("n"), Parked: each, Log: slog.New(slog.DiscardHandler)}, g.all, func() {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	l := &parkListener{came: k.came, closed: make(chan struct{})}
	g.t.Cleanup(func() {
		cancel()
		<-done
		_ = l.Close()
	})
	return k, l
}

// TestParkedConnections reaches a node that has no address more often at once than it has
// parked connections, with TLS from end to end, and comes as another node in between.
func TestParkedConnections(t *testing.T) {
	g := newRelayRig(t, 16, 2)
	_, l := g.park(2)
	config := g.config("n")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s := tls.NewListener(l, config)
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			go func() {
				defer cut(c)
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	for range 6 {
		c, err := g.ask(relayPath + "n")
		if err != nil {
			t.Fatal(err)
		}
		defer cut(c)
		inside := tls.Client(c, g.config("a"))
		if err := inside.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if is := inside.ConnectionState().PeerCertificates[0].Subject.CommonName; is != "n" {
			t.Errorf("the node at the end is %s", is)
		}
		g.echoes(inside)
	}
}

// TestParkedAreBounded checks that a relay keeps so many connections of a node and no
// more, only its own, and none of a node that it does not know.
func TestParkedAreBounded(t *testing.T) {
	g := newRelayRig(t, 16, 2)
	for i := range 3 {
		c, err := askRelay(t.Context(), g.config("n"), g.addr, parkPath)
		if (err == nil) != (i < 2) {
			t.Errorf("parked connection %d: %v", i+1, err)
		}
		if err == nil {
			defer cut(c)
		}
	}
	if _, err := askRelay(t.Context(), g.config("stranger"), g.addr, parkPath); err == nil || !strings.Contains(err.Error(), "keeps no connections") {
		t.Errorf("a connection of a node that is not known was parked: %v", err)
	}
	if s := g.relay.status(); s.Parked != 2 {
		t.Errorf("the relay has %+v", s)
	}
}

// TestRelayAsksNoRelay asks a relay for a node that keeps its connections at another
// one: it does not pass that on.
func TestRelayAsksNoRelay(t *testing.T) {
	g := newRelayRig(t, 4, 1)
	other := newRelayRig(t, 4, 1)
	g.all.saw(nodeRecord{Name: "o", State: nodeUp, Addr: other.addr}, 10)
	g.all.saw(nodeRecord{Name: "n", State: nodeUp, Relays: []string{"o"}}, 11)
	if c, err := g.ask(relayPath + "n"); err == nil || !strings.Contains(err.Error(), "keeps no connection at node r") {
		t.Errorf("a relay reached a node that is not there: %v", err)
		if c != nil {
			cut(c)
		}
	}
	if s := other.relay.status(); s.Tunnels != 0 || s.Bytes != 0 {
		t.Errorf("it asked another relay: %+v", s)
	}
}

// TestSilentParkedConnection has a node that parked connections and does not answer any more:
// a tunnel gets the one that works.
func TestSilentParkedConnection(t *testing.T) {
	g := newRelayRig(t, 4, 2)
	dead, err := askRelay(t.Context(), g.config("n"), g.addr, parkPath)
	if err != nil {
		t.Fatal(err)
	}
	cut(dead)
	live, err := askRelay(t.Context(), g.config("n"), g.addr, parkPath)
	if err != nil {
		t.Fatal(err)
	}
	defer cut(live)
	answered := make(chan error, 1)
	go func() {
		k := parking{every: time.Minute}
		answered <- k.await(live)
	}()
	c, err := g.ask(relayPath + "n")
	if err != nil {
		t.Fatal(err)
	}
	defer cut(c)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = live.Write([]byte("hello")) }()
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestParkedConnectionIsWatched checks that a relay notices when the node of a parked
// connection has gone, and a node when its relay has.
func TestParkedConnectionIsWatched(t *testing.T) {
	g := newWatchfulRig(t, 4, 2, 5*time.Millisecond)
	c, err := askRelay(t.Context(), g.config("n"), g.addr, parkPath)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // it is asked, and answers
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != parkAlive {
			t.Fatalf("%q, %v", b, err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	cut(c)
	polltest.Until(t, "the connection given up", func() bool { return g.relay.status().Parked == 0 })
	silent, quiet := net.Pipe()
	defer silent.Close()
	defer quiet.Close()
	k := parking{every: time.Millisecond}
	var timeout net.Error
	if err := k.await(quiet); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a relay that says nothing: %v", err)
	}
}

// TestRelaysAreRanked checks which nodes are relays of one: those that can be reached and
// did not fail, control nodes first, and not the same for all.
func TestRelaysAreRanked(t *testing.T) {
	all := []member{
		{nodeRecord: nodeRecord{Name: "self", State: nodeUp, Addr: "x", Control: true}},
		{nodeRecord: nodeRecord{Name: "nat", State: nodeUp, Control: true}},
		{nodeRecord: nodeRecord{Name: "lost", State: nodeLost, Addr: "x", Control: true}},
		{nodeRecord: nodeRecord{Name: "worker", State: nodeUp, Addr: "x"}},
		{nodeRecord: nodeRecord{Name: "drains", State: nodeDraining, Addr: "x", Control: true}},
		{nodeRecord: nodeRecord{Name: "failed", State: nodeUp, Addr: "x", Control: true}},
	}
	var names []string
	for _, n := range rankRelays(all, "self", func(m *member) bool { return m.Name == "failed" }) {
		names = append(names, n.Name)
	}
	if got := fmt.Sprint(names); got != "[drains worker failed]" {
		t.Errorf("the relays are %s", got)
	}
	first := make(map[string]int)
	crowd := []member{}
	for i := range 5 {
		crowd = append(crowd, member{nodeRecord: nodeRecord{Name: fmt.Sprint("c", i), State: nodeUp, Addr: "x", Control: true}})
	}
	for i := range 100 {
		first[rankRelays(crowd, fmt.Sprint("node", i), func(*member) bool { return false })[0].Name]++
	}
	if len(first) < 5 {
		t.Errorf("the first relays of 100 nodes are %v", first)
	}
}
