package cli_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/servertest"
)

// TestServeEndsForNewClients checks that a server which ends does not listen any more when
// it tells its clients: one that comes back finds the next server, or none.
func TestServeEndsForNewClients(t *testing.T) {
	state := servertest.StateDir(t)
	s, err := servertest.StartCommand(t.Context(), servertest.Binary(t), "serve", "--state", state, "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	token, err := os.ReadFile(filepath.Join(state, "server-token"))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *websocket.Conn {
		c, _, err := websocket.Dial(t.Context(), s.URL+"/v1/rpc", &websocket.DialOptions{
			Subprotocols: []string{"spool.v1"},
			HTTPHeader:   http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(token))}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	dial() // it never answers a farewell, for which the server waits
	c := dial()
	ended := make(chan error, 1)
	go func() { ended <- s.Stop() }()
	_, _, err = c.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the connection ended with %v", err)
	}
	_, err = net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("another connection: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
