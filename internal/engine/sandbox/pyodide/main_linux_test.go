//go:build amd64 || arm64

package pyodide

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/pyodidetest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == Role {
		debug.SetGCPercent(1) // what is held by nobody is gone at once
		os.Exit(RunRole(os.Args[2:]))
	}
	leaktest.Main(tests{m})
}

// tests runs the tests and then ends what they share.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	for _, s := range []*sharedBackend{&forked, &each} {
		if s.b == nil {
			continue
		}
		if err := s.b.Close(); err != nil {
			code = 1
		}
	}
	return code
}

// sharedBackend is one for all tests that do not harm it: loading Pyodide takes
// a while.
type sharedBackend struct {
	once sync.Once
	b    *Backend
}

var forked, each sharedBackend

// real returns the shared back end with the real Pyodide.
func real(t testing.TB) *Backend {
	t.Helper()
	dist := pyodidetest.Dist(t)
	forked.once.Do(func() { forked.b = New(Options{Dist: dist}) })
	return forked.b
}

// unforked returns the shared back end in which every interpreter is a process
// of its own.
func unforked(t testing.TB) *Backend {
	t.Helper()
	dist := pyodidetest.Dist(t)
	each.once.Do(func() { each.b = New(Options{Dist: dist, NoFork: true}) })
	return each.b
}

// open opens a context of a back end.
func open(t testing.TB, b *Backend, change func(*guest.Options)) *box {
	t.Helper()
	o := guest.Options{FS: newTree(t), Cwd: "/workspace"}
	if change != nil {
		change(&o)
	}
	c, err := b.Open(testContext(t), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c.(*box)
}

// do runs code and returns what it printed.
func do(t testing.TB, c *box, code string) (guest.Result, *testHost) {
	t.Helper()
	h := newHost()
	r, err := c.Run(testContext(t), guest.Script{Code: code}, h)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return r, h
}

// prints runs code that must end well and print that.
func prints(t testing.TB, c *box, code, want string) {
	t.Helper()
	r, h := do(t, c, code)
	if h.stdout() != want || r.ExitCode != 0 || r.EndedBy != "" {
		t.Errorf("%s\nprints %q, want %q; %+v; stderr %s", code, h.stdout(), want, r, h.stderr())
	}
}

func newTree(t testing.TB) *vfs.Tree {
	t.Helper()
	tree := vfs.NewTree(vfs.NewMemory(vfs.NewQuota(64<<20, 10000)))
	for _, dir := range []string{"/workspace", "/tmp"} {
		if err := tree.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// testHost is a guest.Host that keeps the output of a script.
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
