package netcut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
)

// echoServer returns the address of a server that echoes.
func echoServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

func startProxy(t *testing.T) *Proxy {
	t.Helper()
	p, err := NewProxy(echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	// Close the proxy before the echo server waits for its connections.
	t.Cleanup(func() { p.Close() })
	return p
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// echo sends text and expects it back.
func echo(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		t.Fatalf("got %q, %v, want %q", buf, err, text)
	}
}

// wantReset reads until the end of c, which must be a reset, and returns the
// bytes before it.
func wantReset(t *testing.T, c net.Conn) string {
	t.Helper()
	data, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("connection ended with %v after %q, want a reset", err, data)
	}
	return string(data)
}

// wantRefused connects to p and expects a reset, in the connect or after it.
func wantRefused(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection ended with %v, want a reset", err)
	}
}

func TestProxyForwards(t *testing.T) {
	p := startProxy(t)
	c := dial(t, p)
	echo(t, c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(c); err != nil || len(data) != 0 {
		t.Fatalf("after the end: %q, %v", data, err)
	}
	if n := p.Count(); n != 1 {
		t.Errorf("count is %d, want 1", n)
	}
}

func TestProxyCut(t *testing.T) {
	p := startProxy(t)
	a, b := dial(t, p), dial(t, p)
	echo(t, a, "a")
	echo(t, b, "b")
	if n := p.Open(); n != 2 {
		t.Errorf("%d connections are open, want 2", n)
	}
	if n := p.Cut(); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
	wantReset(t, a)
	wantReset(t, b)
	echo(t, dial(t, p), "again")
	if n := p.Count(); n != 3 {
		t.Errorf("count is %d, want 3", n)
	}
}

func TestProxyCutAfter(t *testing.T) {
	for _, dir := range []Direction{ToServer, ToClient} {
		t.Run(fmt.Sprint(dir), func(t *testing.T) {
			p := startProxy(t)
			c := dial(t, p)
			echo(t, c, "before")
			cut := p.CutAfter(dir, 10)
			echo(t, c, "1234567")
			if _, err := io.WriteString(c, "890abc"); err != nil {
				t.Fatal(err)
			}
			got := wantReset(t, c)
			<-cut
			// The echo of the last bytes may be lost.
			if dir == ToClient && got != "890" {
				t.Errorf("got %q before the cut, want 890", got)
			}
			echo(t, dial(t, p), "after")
		})
	}
}

func TestProxyCutAfterNothing(t *testing.T) {
	p := startProxy(t)
	c := dial(t, p)
	echo(t, c, "x")
	<-p.CutAfter(ToClient, 0)
	wantReset(t, c)
}

func TestProxyRefuse(t *testing.T) {
	p := startProxy(t)
	old := dial(t, p)
	echo(t, old, "x")
	p.Refuse()
	wantRefused(t, p)
	echo(t, old, "still here")

	came := make(chan error, 1)
	go func() { came <- p.WaitCount(t.Context(), 2) }()
	p.Admit()
	echo(t, dial(t, p), "x")
	if err := <-came; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.WaitCount(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitCount: got %v, want canceled", err)
	}
}

// TestProxyRefuseFrom refuses the connections of some addresses only.
func TestProxyRefuseFrom(t *testing.T) {
	p := startProxy(t)
	before := dial(t, p)
	echo(t, before, "x")
	p.RefuseFrom(func(from net.Addr) bool { return from.String() != before.LocalAddr().String() })
	wantRefused(t, p)
	echo(t, before, "y") // it goes on
	p.RefuseFrom(nil)
	echo(t, dial(t, p), "z")
}

func TestProxyClose(t *testing.T) {
	p := startProxy(t)
	c := dial(t, p)
	echo(t, c, "x")
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	wantReset(t, c)
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("the proxy still listens")
	}
	if err := p.WaitCount(t.Context(), 2); !errors.Is(err, net.ErrClosed) {
		t.Errorf("WaitCount: got %v, want closed", err)
	}
}

// TestProxyHammer cuts, refuses and counts while clients connect and
// disconnect.
func TestProxyHammer(t *testing.T) {
	p := startProxy(t)
	var clients, chaos sync.WaitGroup
	stop := make(chan struct{})
	chaos.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			case <-p.CutAfter(Direction(i%2), i%3*1000):
			default:
			}
			p.Cut()
			p.Refuse()
			p.Open()
			p.Admit()
		}
	})
	for range 8 {
		clients.Go(func() {
			for range 50 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil { // refused
					continue
				}
				c.Write(make([]byte, 5000))
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	chaos.Wait()
	p.CutAfter(ToClient, 1000) // replaces a pending cut
	echo(t, dial(t, p), "x")
}

func TestMain(m *testing.M) { leaktest.Main(m) }
