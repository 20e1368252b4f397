package bulkconn_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/internal/bulkconn"
	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// counted is a connection that counts its writes.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// pair returns both ends of a connection, and the server's below [bulkconn.Conn].
func pair(t *testing.T) (server, client *bulkconn.Conn, below *counted) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	below = &counted{Conn: accepted}
	server, client = bulkconn.New(below), bulkconn.New(dialed)
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return server, client, below
}

// TestTLS sends much over TLS: what is written while the connection is held goes out at
// once, and what others write meanwhile is not lost.
func TestTLS(t *testing.T) {
	below, dialed, counts := pair(t)
	given := httptest.NewTLSServer(nil) // for its certificate
	given.Close()
	server := tls.Server(below, given.TLS)
	client := tls.Client(dialed, &tls.Config{InsecureSkipVerify: true})

	large := bytes.Repeat([]byte("0123456789abcdef"), bulkconn.Size/16)
	const rounds = 20
	failed := make(chan error, 1)
	go func() {
		if err := server.Handshake(); err != nil {
			failed <- err
			return
		}
		before := counts.writes.Load()
		for range rounds {
			below.Hold()
			_, err := server.Write(large)
			if err := errors.Join(err, below.Flush()); err != nil {
				failed <- err
				return
			}
		}
		if n := counts.writes.Load() - before; n != rounds {
			t.Errorf("%d messages took %d writes", rounds, n)
		}
		_, err := server.Write([]byte("not held"))
		failed <- errors.Join(err, server.Close())
	}()
	got, err := io.ReadAll(client)
	if err := errors.Join(err, <-failed); err != nil {
		t.Fatal(err)
	}
	if want := append(bytes.Repeat(large, rounds), "not held"...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, not the %d that were sent", len(got), len(want))
	}
}

// TestHeldBesideOthers has one goroutine hold the connection again and again while
// another one writes.
func TestHeldBesideOthers(t *testing.T) {
	server, client, _ := pair(t)
	const times = 2000
	done := make(chan error, 2)
	go func() {
		for range times {
			server.Hold()
			_, err := server.Write([]byte("aa"))
			if err := errors.Join(err, server.Flush()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	go func() {
		for range times {
			if _, err := server.Write([]byte("b")); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	go func() {
		if errors.Join(<-done, <-done) == nil {
			_ = server.Close()
		}
	}()
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := bytes.Count(got, []byte("aa")), bytes.Count(got, []byte("b")); a != times || b != times || len(got) != 3*times {
		t.Errorf("%d and %d of %d writes came, %d bytes", a, b, times, len(got))
	}
}

// TestFailedFlush reports the error of a connection that has ended.
func TestFailedFlush(t *testing.T) {
	server, _, _ := pair(t)
	server.Hold()
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if err := server.Flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Flush of a closed connection: %v", err)
	}
}
