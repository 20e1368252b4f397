package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/spool-run/spool/client"
)

// An attempt to connect to a server that does not answer ends after Options.Dial.
func TestDialHasADeadline(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // it accepts nothing
	const limit = 100 * time.Millisecond
	begin := time.Now()
	_, err = client.Dial(t.Context(), "ws://"+ln.Addr().String(), client.Options{Dial: limit})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(begin); took < limit {
		t.Errorf("it ended after %v", took)
	}
}
