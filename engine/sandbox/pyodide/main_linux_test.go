//go:build amd64 || arm64

package pyodide

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spool-run/spool/engine/sandbox/guest"
	"github.com/spool-run/spool/engine/sandbox/vfs"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Role {
		os.Exit(RunRole(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// testHost is a guest.Host that keeps what a script says.
type testHost struct {
	stdin  io.Reader
	answer func(kind string, payload []byte) guest.Reply

	mu       sync.Mutex
	out, err bytes.Buffer
	started  []guest.Startup
	wrote    chan struct{} // gets something whenever something was written
}

func newHost() *testHost { return &testHost{wrote: make(chan struct{}, 1)} }

func (h *testHost) Started(s guest.Startup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = append(h.started, s)
}

func (h *testHost) Write(s guest.Stream, p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s == guest.Stdout {
		h.out.Write(p)
	} else {
		h.err.Write(p)
	}
	select {
	case h.wrote <- struct{}{}:
	default:
	}
}

func (h *testHost) Read(ctx context.Context, p []byte) (int, error) {
	if h.stdin == nil {
		return 0, io.EOF
	}
	return h.stdin.Read(p)
}

func (h *testHost) Ask(ctx context.Context, kind string, payload []byte) []byte {
	if h.answer == nil {
		return guest.Reply{Error: &guest.ReplyError{Code: guest.CodeDenied, Message: kind + " is not offered"}}.Encode()
	}
	return h.answer(kind, payload).Encode()
}

func (h *testHost) stdout() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.out.String()
}

func (h *testHost) stderr() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err.String()
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var _ vfs.FS = (*vfs.Tree)(nil)
