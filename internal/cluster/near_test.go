package cluster

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/netcut"
)

// nearRig is a node with an address and a socket.
type nearRig struct {
	t    *testing.T
	key  Key
	near *Near
	addr string
}

// newNearRig starts a node whose socket answers "nodes only" to those who are admitted.
func newNearRig(t *testing.T) *nearRig {
	leaktest.Check(t)
	dir, err := os.MkdirTemp("", "near") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &nearRig{t: t, key: NewKey(), near: newNear(filepath.Join(dir, socketFile))}
	n := &Node{relay: newRelay(&Options{Name: "b"}, newMembers(nil)), near: g.near}
	t.Cleanup(n.relay.close)
	config, err := g.key.TLS("b")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(n.Relay())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = config
	s.StartTLS()
	t.Cleanup(s.Close)
	g.addr = s.Listener.Addr().String()
	l, err := net.Listen("unix", g.near.socket)
	if err != nil {
		t.Fatal(err)
	}
	u := httptest.NewUnstartedServer(g.near.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "nodes only")
	})))
	_ = u.Listener.Close()
	u.Listener, u.Config.ConnContext = l, g.near.ConnContext
	u.Start()
	t.Cleanup(u.Close)
	return g
}

// ask asks the node at an address for the way to its socket, as node a of a cluster.
func (g *nearRig) ask(addr string, key Key) (nearAnswer, error) {
	g.t.Helper()
	config, err := key.TLS("a")
	if err != nil {
		g.t.Fatal(err)
	}
	return askNear(g.t.Context(), config, addr)
}

// try connects to the socket, and sends a request.
func (g *nearRig) try(a *nearAnswer) (string, error) {
	c, err := a.connect(g.t.Context(), "", "")
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := post(g.t.Context(), c, "http://localhost/", "")
	return string(b), err
}

// TestNear checks that a node of this machine is reached over its socket, with a ticket that
// is good once.
func TestNear(t *testing.T) {
	g := newNearRig(t)
	a, err := g.ask(g.addr, g.key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := g.try(&a); err != nil || got != "nodes only" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := g.try(&a); !errors.Is(err, errNotNear) {
		t.Errorf("a ticket that was used: %v", err)
	}
}

// TestNotNear checks who is not told the way to a socket.
func TestNotNear(t *testing.T) {
	g := newNearRig(t)
	proxy, err := netcut.NewProxy(g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	for _, c := range []struct {
		name, addr string
		key        Key
	}{
		{"through a proxy", proxy.Addr(), g.key},
		{"of another cluster", g.addr, NewKey()},
		{"of another machine", "192.0.2.1:7777", g.key},
		{"of an unknown host", "node.invalid:7777", g.key},
	} {
		if a, err := g.ask(c.addr, c.key); err == nil {
			t.Errorf("a node %s was told the way: %+v", c.name, a)
		}
	}
	g.near.socket = ""
	if _, err := g.ask(g.addr, g.key); !errors.Is(err, errNotNear) {
		t.Errorf("a node without a socket: %v", err)
	}
}

// TestNearNeedsTicket checks that nobody is served at a socket without a ticket that is
// still good.
func TestNearNeedsTicket(t *testing.T) {
	g := newNearRig(t)
	late := nearAnswer{g.near.socket, "late", "proof"}
	g.near.tickets["late"] = ticket{"proof", time.Now()}
	for name, a := range map[string]*nearAnswer{"an unknown": {g.near.socket, "other", "proof"}, "an empty": {Socket: g.near.socket}, "an old": &late} {
		if _, err := g.try(a); !errors.Is(err, errNotNear) {
			t.Errorf("%s ticket: %v", name, err)
		}
	}
	c, err := net.Dial("unix", g.near.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := post(t.Context(), c, "http://localhost/", ""); !errors.Is(err, errNotNear) {
		t.Errorf("without a ticket: %q, %v", b, err)
	}
}

// TestNearProof checks that a process at the socket that is not the node is recognized.
func TestNearProof(t *testing.T) {
	g := newNearRig(t)
	a, err := g.ask(g.addr, g.key)
	if err != nil {
		t.Fatal(err)
	}
	a.Proof = strings.Repeat("0", len(a.Proof))
	if got, err := g.try(&a); err == nil {
		t.Errorf("a node without the proof was asked, and answered %q", got)
	}
}

// TestNearTickets checks that tickets which nobody uses are forgotten.
func TestNearTickets(t *testing.T) {
	n := newNear("socket")
	for i := range maxTickets {
		if !n.give(&nearAnswer{Ticket: fmt.Sprint(i)}) {
			t.Fatalf("ticket %d was refused", i)
		}
	}
	if n.give(&nearAnswer{Ticket: "more"}) {
		t.Error("there are more tickets than may be out")
	}
	for id, k := range n.tickets {
		n.tickets[id] = ticket{k.proof, time.Now().Add(-time.Second)}
	}
	if !n.give(&nearAnswer{Ticket: "more"}) || len(n.tickets) != 1 {
		t.Errorf("%d tickets are out", len(n.tickets))
	}
}
