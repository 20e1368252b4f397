package peer

import (
	"sync"
	"testing"
)

// TestManyPeers checks that every one of many connections at once is known.
func TestManyPeers(t *testing.T) {
	const conns = 200
	ln := listenFor(t, "tcp", "127.0.0.1:0")
	var wg sync.WaitGroup
	for range conns {
		in := accept(t, ln, "tcp")
		wg.Go(func() {
			if _, err := Check(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkCheck(b *testing.B) {
	in := accept(b, listenFor(b, "tcp", "127.0.0.1:0"), "tcp")
	for b.Loop() {
		if _, err := Check(in); err != nil {
			b.Fatal(err)
		}
	}
}
