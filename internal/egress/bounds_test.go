package egress

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/polltest"
)

func TestAskHasATimeout(t *testing.T) {
	s := open(t, Options{AskTimeout: time.Millisecond, Ask: func(ctx context.Context, t Target) (allow bool, reason string, final bool) {
		<-ctx.Done()
		return false, "", false
	}})
	if s.o.AskTimeout == DefaultAskTimeout || New(Options{}).closeNow().o.AskTimeout != DefaultAskTimeout {
		t.Error("the default is not used")
	}
	if code, body := get(t, s.client(t, nil), "http://any.test/"); code != 403 || !strings.Contains(body, "no answer came within 1ms") {
		t.Errorf("status %d: %s", code, body)
	}
}

// closeNow closes a proxy that a test only looks at.
func (p *Proxy) closeNow() *Proxy {
	p.Close()
	return p
}

func TestAsksAreBounded(t *testing.T) {
	s := open(t, Options{Ask: func(context.Context, Target) (bool, string, bool) { return false, "no", true }})
	c := s.client(t, nil)
	for i := range MaxAsks {
		if code, body := get(t, c, fmt.Sprintf("http://h%d.test/", i)); code != 403 || !strings.Contains(body, ": no (") {
			t.Fatalf("host %d: status %d: %s", i, code, body)
		}
	}
	if code, body := get(t, c, "http://another.test/"); code != 403 || !strings.Contains(body, "the run has asked about 64 hosts") {
		t.Errorf("status %d: %s", code, body)
	}
}

func TestTargetsAreBounded(t *testing.T) {
	s := open(t, Options{})
	c := s.client(t, nil)
	for i := range maxTargets + 10 {
		get(t, c, fmt.Sprintf("http://h%d.test/", i))
	}
	if n := len(s.reported()); n != maxTargets+1 {
		t.Errorf("%d reports", n)
	}
	flows := s.Close()
	if len(flows) != maxTargets+1 || flows[0].Host != "" || flows[0].Refused != 10 {
		t.Errorf("%d flows, the first %+v", len(flows), flows[0])
	}
}

func TestHeaderIsBounded(t *testing.T) {
	s := open(t, Options{})
	conn := dial(t, s.addr)
	head := "GET http://a.test/ HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"
	go conn.Write([]byte(head))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestServerLimits(t *testing.T) {
	p := New(Options{}).closeNow()
	if p.server.ReadHeaderTimeout != headerTimeout || p.transport.TLSHandshakeTimeout != dialTimeout || p.o.Idle != idleTimeout || p.server.MaxHeaderBytes != maxHeader {
		t.Error("the limits are not used")
	}
}

// TestConnectionsAreBounded opens as many connections as may be open, and one more,
// which is served when another one ends.
func TestConnectionsAreBounded(t *testing.T) {
	_, port := hello(t, false)
	s := open(t, Options{Rules: rules(t, []string{"127.0.0.1"}, nil)})
	var held []*net.TCPConn
	for range maxConnections {
		held = append(held, dial(t, s.addr))
	}
	one := dial(t, s.addr)
	fmt.Fprintf(one, "GET http://127.0.0.1:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", port)
	polltest.Until(t, "accepted all of the others", func() bool { return len(s.room) == maxConnections })
	if err := one.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := one.Read(make([]byte, 1)); err == nil {
		t.Errorf("one connection more read %d bytes", n)
	}
	if err := one.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	_ = held[0].Close()
	resp, err := http.ReadResponse(bufio.NewReader(one), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}
