package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// BenchmarkTunnel measures the bytes that a tunnel carries to the run.
func BenchmarkTunnel(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const chunk = 1 << 20
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, chunk)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	s := open(b, Options{Rules: rules(b, []string{"127.0.0.1"}, nil)})
	client := dial(b, s.addr)
	fmt.Fprintf(client, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	r := bufio.NewReader(client)
	if resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		b.Fatalf("%v, %v", resp, err)
	}
	b.SetBytes(chunk)
	buf := make([]byte, chunk)
	for b.Loop() {
		if _, err := io.ReadFull(r, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest measures a small request on a connection that is kept.
func BenchmarkRequest(b *testing.B) {
	_, port := hello(b, false)
	s := open(b, Options{Rules: rules(b, []string{"good.test", "127.0.0.1"}, nil)})
	c := s.client(b, nil)
	for b.Loop() {
		if code, _ := get(b, c, "http://good.test:"+port+"/"); code != 200 {
			b.Fatal(code)
		}
	}
}

// BenchmarkConnect measures a tunnel from its request to its first byte.
func BenchmarkConnect(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
	}()
	s := open(b, Options{Rules: rules(b, []string{"127.0.0.1"}, nil)})
	for b.Loop() {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
		if _, err := io.ReadAll(c); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
}
