package wasipy

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/servertest"
)

// testMachine is the interpreter in this process, prepared where the other
// tests of this package prepare it.
func testMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Config{CacheDir: filepath.Join(dir, "spool-test", "wasipy")})
	t.Cleanup(func() { _ = b.Close() })
	p, _, err := b.prepare(context.Background(), guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.machine(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An interrupt that comes before an interpreter is ready ends its first script.
func TestInterruptBeforeTheInterpreterIsReady(t *testing.T) {
	m := testMachine(t)
	i, err := m.instantiate(t.Context(), instanceOptions{memory: spareMemory, files: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer i.close()
	var out bytes.Buffer
	i.begin(t.Context(), &recorder{out: &out}, m.files(vfs.NewTree(vfs.NewMemory(nil))))
	i.interrupted = true
	if err := i.renew(guest.BootConfig{Cwd: "/"}); err != nil {
		t.Fatal(err)
	}
	if res, err := i.run(guest.Script{Code: "while True: pass"}); err != nil || res.ExitCode != 130 || res.Exception == nil || res.Exception.Name != "KeyboardInterrupt" {
		t.Errorf("%+v %v; it wrote %q", res, err, out.String())
	}
}

func TestRecycledMemoryEqualsTheImage(t *testing.T) {
	m := testMachine(t)
	fsys := m.files(vfs.NewTree(vfs.NewMemory(nil)))
	o := instanceOptions{memory: spareMemory, files: 16}
	for _, code := range []string{
		"print('hello')", "secret = 'x' * 200000", "import sqlite3, email.mime.text", "open('/f', 'w').write('y')\nf = open('/f')",
		"l = [str(i) for i in range(5000)]; raise ValueError(l[7])", "def f(n): return n and f(n-1)\nf(400)",
	} {
		i, err := m.instantiate(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		i.begin(context.Background(), &recorder{out: &bytes.Buffer{}}, fsys)
		if err := i.renew(guest.BootConfig{Cwd: "/", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		if res, err := i.run(guest.Script{Code: code}); err != nil || res.Lost {
			t.Fatalf("%s: %+v %v", code, res, err)
		}
		if !i.recycle() {
			t.Fatalf("%s: not to be used again; %d pages of memory, %d fuel", code, i.cow.size/pageSize, i.spent)
		}
		im := m.image
		memory := i.cow.region[:i.cow.size]
		if !bytes.Equal(memory[im.From:im.To], im.contents) {
			t.Errorf("%s: something was left in the image", code)
		}
		for at, b := range memory {
			if b != 0 && (uint64(at) < im.From || uint64(at) >= im.To) {
				t.Errorf("%s: something was left at %#x", code, at)
				break
			}
		}
		if len(i.files.open) != root+1 {
			t.Errorf("%s: %d descriptors are left", code, len(i.files.open))
		}
		i.close()
	}
}

func TestDamagedImagesAreDetected(t *testing.T) {
	memory := make([]byte, stackSize+16*pageSize)
	copy(memory[stackSize+3*pageSize:], "something")
	copy(memory[stackSize+9*pageSize:], "more")
	im, contents := capture(memory)
	im.Hot = []span{{stackSize, stackSize + pageSize}}
	b := im.encode(contents)
	got, err := decodeImage(b)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.From != stackSize+3*pageSize || got.To != stackSize+10*pageSize || got.Size != uint64(len(memory)) || len(got.Hot) != 1 || !bytes.Equal(got.contents, contents) {
		t.Errorf("%+v", got)
	}
	for _, bad := range [][]byte{nil, b[:10], b[:len(b)-1], append(bytes.Clone(b), 0), bytes.Replace(b, []byte("image 1"), []byte("image 0"), 1)} {
		if im, err := decodeImage(bad); err == nil {
			im.Close()
			t.Errorf("%d bytes of damage were taken for an image", len(bad))
		}
	}
	for at := len(imageMagic); at < len(imageMagic)+48; at++ {
		bad := bytes.Clone(b)
		bad[at] ^= 0x15
		if im, err := decodeImage(bad); err == nil {
			im.Close()
			t.Errorf("damage at %d was taken for an image", at)
		}
	}
}

// quietHost is a host that ignores output and answers nothing.
type quietHost struct{ out chan string }

func (h quietHost) Started(guest.Startup) {}
func (h quietHost) Write(_ guest.Stream, p []byte) {
	select {
	case h.out <- string(p):
	default:
	}
}
func (h quietHost) Read(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}
func (h quietHost) Ask(context.Context, string, []byte) []byte { return tooLarge }

// testPool is a back end with workers.
func testPool(t *testing.T, workers int) (*Backend, *pool) {
	t.Helper()
	if _, err := servertest.Build(); err != nil { // not when a script waits for it
		t.Fatal(err)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Config{CacheDir: filepath.Join(dir, "spool-test", "wasipy"), Worker: BuiltWorker, MaxWorkers: workers})
	t.Cleanup(func() { _ = b.Close() })
	p, _, err := b.prepare(context.Background(), guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	p.pool.imageAge = 24 * time.Hour // that of the tests is as old as it is
	return b, p.pool
}

func openTest(t *testing.T, b *Backend) guest.Context {
	t.Helper()
	c, err := b.Open(context.Background(), guest.Options{FS: vfs.NewTree(vfs.NewMemory(nil)), Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCrashedWorkerEndsOneRun(t *testing.T) {
	b, pl := testPool(t, 4)
	type outcome struct {
		res guest.Result
		err error
	}
	contexts := make([]guest.Context, 3)
	over := make([]chan outcome, len(contexts))
	for n := range contexts {
		contexts[n], over[n] = openTest(t, b), make(chan outcome, 1)
		h := quietHost{make(chan string, 1)}
		go func() {
			res, err := contexts[n].Run(context.Background(), guest.Script{Code: "import sys\ntry:\n print('go')\n sys.stdin.readline()\nexcept KeyboardInterrupt: sys.exit(7)"}, h)
			over[n] <- outcome{res, err}
		}()
		<-h.out
	}
	victim := contexts[1].(*pyContext).runner.(*remoteRunner).use.worker
	pl.mu.Lock()
	busy := victim.busy
	victim.kill()
	pl.mu.Unlock()
	if busy != 1 {
		t.Errorf("the worker had %d runs", busy)
	}
	if o := <-over[1]; o.err != nil || o.res.EndedBy != guest.Crashed || !o.res.Lost {
		t.Errorf("%+v", o)
	}
	for _, n := range []int{0, 2} {
		if err := contexts[n].(*pyContext).Interrupt(); err != nil {
			t.Error(err)
		}
		if o := <-over[n]; o.err != nil || o.res.ExitCode != 7 || o.res.Lost {
			t.Errorf("run %d: %+v %+v", n, o, o.res.Exception)
		}
	}
	if res, err := contexts[1].Run(context.Background(), guest.Script{Code: "import sys; sys.exit(8)"}, quietHost{}); err != nil || res.ExitCode != 8 {
		t.Errorf("after the crash: %+v %v", res, err)
	}
}

func TestWorkersDropPrivileges(t *testing.T) {
	b, pl := testPool(t, 1)
	c := openTest(t, b)
	if res, err := c.Run(context.Background(), guest.Script{Code: "1"}, quietHost{}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	pl.mu.Lock()
	pid := pl.workers[0].proc.Pid
	pl.mu.Unlock()
	proc := func(name string) string {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	status := proc("status")
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q", want)
		}
	}
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		s, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", task.Name(), "status"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil || !strings.Contains(string(s), "Seccomp:\t2\n") {
			t.Errorf("thread %s is not filtered: %v", task.Name(), err)
		}
	}
	if env := proc("environ"); strings.Contains(env, "HOME") || strings.Contains(env, "PATH") {
		t.Errorf("its environment is %q", env)
	}
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", fd.Name()))
		ok := false
		for _, prefix := range []string{"/dev/null", "socket:", "pipe:", "anon_inode:", "/memfd:", "/proc/", "/sys/fs/cgroup/"} {
			ok = ok || strings.HasPrefix(to, prefix)
		}
		if !ok && !strings.HasSuffix(to, codeFile) && !strings.HasSuffix(to, "/mm/transparent_hugepage/hpage_pmd_size") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}

func TestManyContextsShareFewWorkers(t *testing.T) {
	b, pl := testPool(t, 2)
	var all sync.WaitGroup
	for range 24 {
		c := openTest(t, b)
		all.Go(func() {
			for n := range 3 {
				if res, err := c.Run(context.Background(), guest.Script{Code: "import sys; sys.exit(" + strconv.Itoa(n) + ")"}, quietHost{}); err != nil || res.ExitCode != n {
					t.Errorf("%+v %v", res, err)
				}
			}
		})
	}
	all.Wait()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if n := len(pl.workers); n > 2 {
		t.Errorf("%d workers", n)
	}
}

func TestWorkerStartFailure(t *testing.T) {
	b, pl := testPool(t, 1)
	pl.cfg.Worker = func(...string) *exec.Cmd { return BuiltWorker("no such verb", "") }
	c := openTest(t, b)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if res, err := c.Run(ctx, guest.Script{Code: "1"}, quietHost{}); err == nil || !strings.Contains(err.Error(), "unknown verb") {
		t.Errorf("%+v %v", res, err)
	}
}

func TestWorkerNotReadyInTimeIsKilled(t *testing.T) {
	b, pl := testPool(t, 1)
	pl.startLimit = 50 * time.Millisecond
	pl.cfg.Worker = func(...string) *exec.Cmd { // it never says anything
		cmd := BuiltWorker()
		cmd.Args = []string{"spool", isolate.Role, "attempt", "wait"}
		return cmd
	}
	c := openTest(t, b)
	res, err := c.Run(context.Background(), guest.Script{Code: "1"}, quietHost{})
	if err == nil || !strings.Contains(err.Error(), "not ready in time: it had 50ms") || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("%+v %v", res, err)
	}
}

// startedHost reports the start of its script.
type startedHost struct {
	quietHost
	started chan struct{}
}

func (h startedHost) Started(guest.Startup) { close(h.started) }

func TestWorkerWithStuckScriptIsKilled(t *testing.T) {
	b, pl := testPool(t, 1)
	pl.workerGrace = 50 * time.Millisecond
	c := openTest(t, b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := startedHost{started: make(chan struct{})}
	ended := make(chan guest.Result, 1)
	go func() {
		res, err := c.Run(ctx, guest.Script{Code: "while True: pass"}, h)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	<-h.started
	pl.mu.Lock()
	w := pl.workers[0]
	pl.mu.Unlock()
	// A worker that does nothing at all any more.
	if err := w.proc.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	if res := <-ended; res.EndedBy != guest.Killed || !res.Lost {
		t.Errorf("%+v", res)
	}
	<-w.waited
	if s := w.proc.state.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
		t.Errorf("the worker ended by %v", s.Signal())
	}
	// The next script has another.
	if res, err := c.Run(context.Background(), guest.Script{Code: "import sys; sys.exit(7)"}, quietHost{}); err != nil || res.ExitCode != 7 {
		t.Errorf("%+v %v", res, err)
	}
}
