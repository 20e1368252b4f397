package wasipy_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/python"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	code := servertest.Main(m)
	for _, b := range shared.all() {
		_ = b.Close()
	}
	os.Exit(leaktest.Code(code))
}

// cacheDir is where tests keep the prepared interpreter, also between runs of
// the tests.
func cacheDir(t testing.TB) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "spool-test", "wasipy")
}

// backends are the back ends that tests share, by isolation.
type backends struct {
	mu sync.Mutex
	by map[python.Isolation]*wasipy.Backend
}

var shared backends

func (s *backends) all() []*wasipy.Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*wasipy.Backend
	for _, b := range s.by {
		out = append(out, b)
	}
	return out
}

func (s *backends) get(t testing.TB, i python.Isolation) *wasipy.Backend {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.by[i]; b != nil {
		return b
	}
	b := wasipy.New(wasipy.Config{Worker: wasipy.BuiltWorker, CacheDir: cacheDir(t)})
	if s.by == nil {
		s.by = make(map[python.Isolation]*wasipy.Backend)
	}
	s.by[i] = b
	return b
}

// everywhere runs a test in workers and in this process. With the race detector
// in it the latter takes minutes to compile the interpreter, so that is left to
// a run of the tests without.
func everywhere(t *testing.T, test func(t *testing.T, i python.Isolation)) {
	t.Run("worker", func(t *testing.T) { test(t, python.IsolateStrict) })
	if !raceEnabled {
		t.Run("in process", func(t *testing.T) { test(t, python.IsolateNone) })
	}
}

// open opens a context and closes it with the test.
func open(t testing.TB, i python.Isolation, o guest.Options) guest.Context {
	t.Helper()
	o.Isolation = i
	if o.FS == nil {
		o.FS = memory()
	}
	if o.Cwd == "" {
		o.Cwd = "/"
	}
	c, err := shared.get(t, i).Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// memory is a small file system.
func memory() *vfs.Tree {
	fsys := vfs.NewTree(vfs.NewMemory(vfs.NewQuota(0, 0)))
	for _, dir := range []string{"/tmp", "/workspace"} {
		_ = fsys.Mkdir(dir, 0o755)
	}
	return fsys
}

// patience bounds the wait for a script, which takes longer on a busy machine.
const patience = 5 * time.Minute

// host is a host that keeps what a script does.
type host struct {
	mu      sync.Mutex
	out     strings.Builder
	err     strings.Builder
	started int
	startup guest.Startup
	first   time.Time
	writes  int

	wrote chan struct{} // has room for one: something was written
	stdin chan []byte   // closed at the end of input; nil is at its end
	left  []byte
	ask   func(ctx context.Context, kind string, payload []byte) []byte
}

func newHost() *host { return &host{wrote: make(chan struct{}, 1)} }

func (h *host) Started(s guest.Startup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started++
	h.startup = s
}

func (h *host) Write(s guest.Stream, p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first.IsZero() {
		h.first = time.Now()
	}
	h.writes++
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

func (h *host) Read(ctx context.Context, p []byte) (int, error) {
	if len(h.left) == 0 {
		if h.stdin == nil {
			return 0, io.EOF
		}
		select {
		case b, ok := <-h.stdin:
			if !ok {
				return 0, io.EOF
			}
			h.left = b
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	n := copy(p, h.left)
	h.left = h.left[n:]
	return n, nil
}

func (h *host) Ask(ctx context.Context, kind string, payload []byte) []byte {
	if h.ask == nil {
		return guest.Reply{Error: &guest.ReplyError{Code: guest.CodeDenied, Message: kind + " was not offered"}}.Encode()
	}
	return h.ask(ctx, kind, payload)
}

func (h *host) stdout() string { h.mu.Lock(); defer h.mu.Unlock(); return h.out.String() }
func (h *host) stderr() string { h.mu.Lock(); defer h.mu.Unlock(); return h.err.String() }

// await waits until the output holds a text.
func (h *host) await(t testing.TB, text string) {
	t.Helper()
	limit := time.After(patience)
	for !strings.Contains(h.stdout(), text) {
		select {
		case <-h.wrote:
		case <-limit:
			t.Fatalf("%q did not come; there is %q, %q", text, h.stdout(), h.stderr())
		}
	}
}

// run executes code and fails the test if the back end fails.
func run(t testing.TB, c guest.Context, code string) (guest.Result, *host) {
	t.Helper()
	h := newHost()
	return runWith(t, c, code, h), h
}

func runWith(t testing.TB, c guest.Context, code string, h *host) guest.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := c.Run(ctx, guest.Script{Code: code}, h)
	if err != nil {
		t.Fatalf("run %q: %v", code, err)
	}
	return res
}

// prints fails the test unless code prints exactly that and succeeds.
func prints(t testing.TB, c guest.Context, code, want string) {
	t.Helper()
	res, h := run(t, c, code)
	if res.ExitCode != 0 || h.stdout() != want || h.stderr() != "" {
		t.Errorf("%s\nended with %+v and printed %q, %q; want %q", code, res, h.stdout(), h.stderr(), want)
	}
}

func asUnavailable(err error, u **guest.UnavailableError) bool { return errors.As(err, u) }
