package cluster_test

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/cluster"
)

// TestControlNodes checks which lists of control nodes are taken.
func TestControlNodes(t *testing.T) {
	for list, ok := range map[string]bool{
		"": true, "h:1": true, "h:1,h:2,h:3": true, "[::1]:7777": true, "h:1,h:2,h:3,h:4,h:5": true,
		"h:1,h:2": false, "h:1,h:1,h:2": false, "h": false, "h:0": false, ":1": false, "h:65534": false, "h:1,h:2,h:3,h:4,h:5,h:6,h:7": false,
	} {
		var addresses []string
		if list != "" {
			addresses = strings.Split(list, ",")
		}
		if err := cluster.CheckControl(addresses); (err == nil) != ok {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// TestNodeNames checks which names nodes can have.
func TestNodeNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "web-1": true, strings.Repeat("x", 63): true, "": false, "A": false, "a.b": false, "a b": false, "*": false, strings.Repeat("x", 64): false,
	} {
		if err := cluster.CheckNode(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestTokenIsTheMembership checks that a token carries a membership, and that a machine
// stays in its cluster.
func TestTokenIsTheMembership(t *testing.T) {
	m := cluster.Membership{Key: cluster.NewKey(), Control: []string{"10.0.0.1:7777"}}
	got, err := cluster.ParseToken(m.Token() + "\n")
	if err != nil || got.Key != m.Key || len(got.Control) != 1 || got.Control[0] != m.Control[0] {
		t.Fatalf("%+v, %v", got, err)
	}
	dir := t.TempDir()
	if _, err := cluster.LoadMembership(dir); err == nil {
		t.Error("a machine without a cluster has one")
	}
	for range 2 {
		if err := cluster.SaveMembership(dir, m); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := cluster.LoadMembership(dir); err != nil || got.Key != m.Key || got.Control[0] != m.Control[0] {
		t.Errorf("%+v, %v", got, err)
	}
	if err := cluster.SaveMembership(dir, cluster.Membership{Key: cluster.NewKey()}); err == nil {
		t.Error("a machine joined another cluster")
	}
	for _, text := range []string{"", "x", m.Token()[:20]} {
		if _, err := cluster.ParseToken(text); err == nil {
			t.Errorf("%q is a token", text)
		}
	}
}

// TestOnlyNodesConnect checks that two nodes of a cluster connect, and that a node of
// another cluster does not.
func TestOnlyNodesConnect(t *testing.T) {
	key := cluster.NewKey()
	config := func(k cluster.Key) *tls.Config {
		t.Helper()
		c, err := k.TLS("node")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config(key))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "x") // the client says whether it came
			_ = c.Close()
		}
	}()
	defer func() {
		_ = l.Close()
		<-done
	}()
	connect := func(client *tls.Config) error {
		c, err := tls.Dial("tcp", l.Addr().String(), client)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
		return err
	}
	if err := connect(config(key)); err != nil {
		t.Error(err)
	}
	if err := connect(config(cluster.NewKey())); err == nil {
		t.Error("a node of another cluster connected")
	}
	stranger := config(key)
	stranger.Certificates = nil
	if err := connect(stranger); err == nil {
		t.Error("a client without a certificate connected")
	}
}
