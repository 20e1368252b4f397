package listen

import (
	"errors"
	"testing"

	"github.com/spool-run/spool/internal/peer"
)

// TestKernelThatDoesNotTell checks that a server on loopback needs a token where
// the kernel does not tell which user connects.
func TestKernelThatDoesNotTell(t *testing.T) {
	probeTCP = func(string) error { return peer.ErrUnknown }
	defer func() { probeTCP = peer.ProbeTCP }()
	a, err := ParseAddress("ws://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(a, Options{}); !errors.Is(err, ErrNoPeers) || !errors.Is(err, peer.ErrUnknown) {
		t.Errorf("without a token: %v", err)
	}
	for _, o := range []Options{{Token: true}, {InsecureNoAuth: true}} {
		l, err := Open(a, o)
		if err != nil {
			t.Errorf("with %+v: %v", o, err)
			continue
		}
		l.Close()
	}
}
