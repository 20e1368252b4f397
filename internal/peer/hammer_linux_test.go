package peer

import (
	"net"
	"sync"
	"testing"
)

// TestManyPeers checks that every one of many connections at once is known.
func TestManyPeers(t *testing.T) {
	const conns = 200
	ln := listenFor(t, "tcp", "127.0.0.1:0")
	var wg sync.WaitGroup
	for range conns {
		out, err := net.Dial("tcp", target(ln))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		wg.Go(func() {
			if _, err := Check(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkCheck(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	out, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	in, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	for b.Loop() {
		if _, err := Check(in); err != nil {
			b.Fatal(err)
		}
	}
}
