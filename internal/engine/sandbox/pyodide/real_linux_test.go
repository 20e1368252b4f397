//go:build amd64 || arm64

package pyodide

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/pyodidetest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/python"
)

var unixEpoch = time.Unix(1, 0)

func TestFilesAreThoseOfTheContext(t *testing.T) {
	c := open(t, real(t), nil)
	prints(t, c, `
import os, io, mmap
os.makedirs("a/b/c")
with open("a/b/c/f.txt", "w") as f:
    f.write("one\n")
with open("a/b/c/f.txt", "a") as f:
    f.write("two\n")
with open("a/b/c/f.txt", "r+") as f:
    f.seek(4); f.write("TWO"); f.seek(0); print(f.read().split())
    f.truncate(3)
print(os.path.getsize("a/b/c/f.txt"), open("a/b/c/f.txt").read())
os.symlink("f.txt", "a/b/c/l.txt")
print(os.readlink("a/b/c/l.txt"), open("a/b/c/l.txt").read(), os.path.islink("a/b/c/l.txt"))
os.rename("a/b/c/f.txt", "a/g.txt")
print(sorted(os.listdir("a")), os.path.exists("a/b/c/l.txt"), os.path.lexists("a/b/c/l.txt"))
os.chmod("a/g.txt", 0o600); os.utime("a/g.txt", (1, 2.5))
st = os.stat("a/g.txt"); print(oct(st.st_mode), st.st_atime, st.st_mtime)
fd = os.open("a/g.txt", os.O_RDWR); two = os.dup(fd); os.close(fd)
print(os.pread(two, 2, 1), os.fstat(two).st_size); os.unlink("a/g.txt"); print(os.read(two, 9)); os.close(two)
big = bytes(range(256)) * 20000
open("big", "wb").write(big); print(open("big", "rb").read() == big)
with open("big", "r+b") as f, mmap.mmap(f.fileno(), 0) as m: print(m[255], len(m))
for e, g in (("FileNotFoundError", lambda: open("none")), ("FileExistsError", lambda: os.mkdir("a")), ("IsADirectoryError", lambda: open("a", "w")),
          ("NotADirectoryError", lambda: open("big/x")), ("OSError", lambda: os.rmdir("a")), ("OSError", lambda: os.rename("big", "/lib/big"))):
    try: g(); print("no", e)
    except OSError as x: print(type(x).__name__ == e, end=" ")
print(sorted(e.name for e in os.scandir("/")), len(os.listdir("/dev")) > 0)
`, `['one', 'TWO']
3 one
f.txt one True
['b', 'g.txt'] False True
0o100600 1.0 2.5
b'ne' 3
b'one'
True
255 5120000
True True True True True True ['dev', 'lib', 'proc', 'tmp', 'workspace'] True
`)
	if b, err := c.options.FS.Stat("/workspace/big", true); err != nil || b.Size != 5120000 {
		t.Errorf("the host sees %+v, %v", b, err)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	c := open(t, real(t), func(o *guest.Options) { o.OpenFiles = 8 })
	prints(t, c, `
import errno
held = []
try:
    for i in range(100): held.append(open("f%d" % i, "w"))
except OSError as e:
    print(errno.errorcode[e.errno], len(held))
`, "EMFILE 8\n")
}

func TestMemoryIsBounded(t *testing.T) {
	b := real(t)
	c := open(t, b, func(o *guest.Options) { o.Memory = 96 << 20 })
	prints(t, c, `
held = []
try:
    while True: held.append(bytearray(1 << 20))
except MemoryError:
    n = len(held); held = None
print(20 < n < 96)
`, "True\n")
	prints(t, c, "print('the same one', n > 0)", "the same one True\n")
	if r, _ := do(t, c, "x = bytearray(1 << 30)"); r.EndedBy != guest.Memory || r.ExitCode != 1 || r.Lost {
		t.Errorf("an uncaught MemoryError: %+v", r)
	}
	// Outside of Python's memory the kernel is what bounds it.
	for _, bomb := range []string{
		"const held = []; for (;;) held.push(new Uint8Array(1 << 20).fill(1))",
		"const m = new WebAssembly.Memory({ initial: 1, maximum: 65536 }); for (;;) { m.constructor.prototype.grow.call(m, 64); new Uint8Array(m.buffer).fill(1) }",
		"const held = []; for (;;) held.push({ a: [held.length] })",
	} {
		r, h := do(t, c, "import js\njs.eval('(() => { "+bomb+" })()')")
		if r.ExitCode == 0 {
			t.Errorf("%s: %+v, stderr %q", bomb, r, h.stderr())
		}
		prints(t, c, "print('alive')", "alive\n")
	}
}

func TestForksHaveTheirOwnEntropy(t *testing.T) {
	b := real(t)
	seen := make(map[string]bool)
	code := `
import os, random, uuid, secrets
print(os.urandom(8).hex(), random.random(), uuid.uuid4(), secrets.token_hex(8))`
	for range 3 {
		_, h := do(t, open(t, b, nil), code)
		f := strings.Fields(h.stdout())
		if len(f) != 4 {
			t.Fatal(h.stdout(), h.stderr())
		}
		for _, v := range f {
			if seen[v] {
				t.Errorf("%s came twice", v)
			}
			seen[v] = true
		}
	}
}

// TestInterruptAtAnyPoint interrupts loops at many moments: Pyodide looks for interrupts
// all the time, and must not lose one that comes while it looks.
func TestInterruptAtAnyPoint(t *testing.T) {
	c := open(t, real(t), nil)
	prints(t, c, "x = 1", "")
	const loops = 100
	for i := range loops + 1 {
		code := "while True: pass"
		if i == loops {
			code = "time.sleep(1000)"
		}
		h := newHost()
		go func() {
			<-h.wrote
			if err := c.Interrupt(); err != nil {
				t.Error(err)
			}
		}()
		r, err := c.Run(testContext(t), guest.Script{Code: "import time\nprint('up')\n" + code}, h) // no interrupt while it imports
		if err != nil || r.Lost || r.Exception == nil || r.Exception.Name != "KeyboardInterrupt" {
			t.Fatalf("%s, interrupt %d: %+v, %v", code, i, r, err)
		}
	}
	prints(t, c, "print(x)", "1\n")
}

func TestNumpyFromWheels(t *testing.T) {
	c := open(t, real(t), func(o *guest.Options) {
		o.Packages, o.Wheels, o.Memory = []string{"numpy"}, pyodidetest.Wheels(t), 128<<20
	})
	prints(t, c, "import numpy\nprint(numpy.linalg.inv(numpy.eye(2)).sum(), numpy.random.default_rng().random() != numpy.random.random())", "2.0 True\n")
	// The startup reports how long loading took, which was done before.
	for what, b := range map[string]*Backend{"forked": real(t), "a process each": unforked(t)} {
		c := open(t, b, func(o *guest.Options) { o.Packages, o.Wheels = []string{"numpy"}, pyodidetest.Wheels(t) })
		_, h := do(t, c, "pass")
		if len(h.started) != 1 {
			t.Fatalf("%s: started %d times", what, len(h.started))
		}
		if s := h.started[0]; s.Packages < 1 || s.PackageLoad < 10*time.Millisecond || s.Interpreter < 10*time.Millisecond || s.Duration <= 0 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	n, err := c.private(testContext(t))
	if err != nil || n <= 0 || n > 24<<20 {
		t.Errorf("it has %d bytes for itself, %v", n, err)
	}
	if r, h := do(t, c, "import pandas"); r.ExitCode != 1 || !strings.Contains(h.stderr(), "ModuleNotFoundError") {
		t.Errorf("a package that was not asked for: %+v, stderr %q", r, h.stderr())
	}
}

func TestStrictIsolationIsCompleteOrRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	if !canFork {
		t.Skip("strict isolation needs forks, which this architecture does not have")
	}
	p, err := real(t).Prepare(ctx, guest.Setup{Isolation: python.IsolateStrict})
	if err != nil || !slices.Contains(p.Protections, ProtectStrictFilter) {
		t.Errorf("%+v, %v", p, err)
	}
	b := unforked(t)
	var unavailable *guest.UnavailableError
	if _, err := b.Prepare(ctx, guest.Setup{Isolation: python.IsolateStrict}); !errors.As(err, &unavailable) {
		t.Errorf("without forks: %v, want it refused", err)
	}
	p, err = b.Prepare(ctx, guest.Setup{})
	if err != nil || slices.Contains(p.Protections, ProtectStrictFilter) || len(p.Protections) == 0 {
		t.Errorf("the best there is without forks: %+v, %v", p, err)
	}
	c := open(t, b, nil)
	prints(t, c, "import os\nopen('f', 'w').write('x')\nprint(os.listdir('.'))", "['f']\n")
	prints(t, open(t, b, nil), "print('another')", "another\n")
	_, h := do(t, c, "import js\nprint(js.eval(\"try { process.getBuiltinModule('child_process').spawnSync('/node').error.code } catch (e) { e.code }\"))")
	if !strings.HasPrefix(h.stdout(), "E") {
		t.Errorf("a process of its own could start another: %q %q", h.stdout(), h.stderr())
	}
}

// A process that cannot be interrupted is left alone by it.
func TestIgnoredInterrupt(t *testing.T) {
	t.Parallel()
	b := unforked(t)
	c := open(t, b, nil)
	prints(t, c, "x = 1", "")
	h := newHost()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go func() {
		<-h.wrote
		if err := c.Interrupt(); err != nil {
			t.Error(err)
		}
		if _, err := c.private(ctx); err != nil { // comes after it
			t.Error(err)
		}
		cancel()
	}()
	r, err := c.Run(ctx, guest.Script{Code: "print('up')\nwhile True: pass"}, h)
	if err != nil || r.EndedBy != guest.Killed {
		t.Errorf("%+v, %v", r, err)
	}
	prints(t, c, "print('x' in globals())", "False\n")
}

// Without namespaces there are fewer protections, which is said, and refused if all
// were asked for.
func TestWithoutNamespaces(t *testing.T) {
	ctx := testContext(t)
	b := New(Options{Dist: real(t).opts.Dist, NoNamespaces: true})
	defer b.Close()
	if _, err := b.Prepare(ctx, guest.Setup{Isolation: python.IsolateStrict}); !errors.Is(err, errNoNamespaces) {
		t.Errorf("strict: %v, want it refused", err)
	}
	p, err := b.Prepare(ctx, guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(p.Protections, ProtectNamespaces) || !strings.Contains(strings.Join(p.Protections, "\n"), "Landlock") {
		t.Errorf("the protections are said to be %q", p.Protections)
	}
	file := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(file, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPOOL_TEST_SECRET", "secret")
	c := open(t, b, nil)
	prints(t, c, "open('f', 'w').write('x')\nprint(open('f').read())", "x\n")
	for code, want := range map[string]string{
		"fs.readFileSync('" + file + "', 'utf8')":                       "EACCES",
		"fs.readFileSync('/etc/passwd', 'utf8')":                        "EACCES",
		"fs.readdirSync('/root')":                                       "EACCES",
		"fs.readFileSync('/proc/' + process.ppid + '/environ', 'utf8')": "EACCES",
		"fs.writeFileSync('/tmp/left', 'x')":                            "EACCES",
		"process.kill(process.ppid, 'SIGKILL')":                         "EPERM",
		"JSON.stringify(process.env)":                                   "{}",
	} {
		_, h := do(t, c, "import js\nprint(js.eval(\"const fs = process.getBuiltinModule('fs'); (() => { try { return "+
			strings.ReplaceAll(code, `"`, `\"`)+" } catch (e) { return e.code } })()\"))")
		if strings.TrimSpace(h.stdout()) != want {
			t.Errorf("%s gives %q, want %s; %s", code, h.stdout(), want, h.stderr())
		}
	}
	// The end of the holder ends them all.
	proc := c.proc
	c.group.first.Kill()
	<-c.group.gone
	if _, err := proc.conn.Read(make([]byte, 1)); err == nil {
		t.Error("an interpreter outlived its holder")
	}
}

func TestSupervisorDeathIsRecovered(t *testing.T) {
	t.Parallel()
	b := New(Options{Dist: real(t).opts.Dist})
	defer b.Close()
	c := open(t, b, nil)
	prints(t, c, "x = 1", "")
	c.group.first.Kill()
	<-c.group.gone
	prints(t, c, "print('x' in globals())", "False\n")
}

func TestCloseStopsRunningScripts(t *testing.T) {
	c := open(t, real(t), nil)
	h := newHost()
	go func() {
		<-h.wrote
		_ = c.Close()
	}()
	r, err := c.Run(testContext(t), guest.Script{Code: "print('up')\nwhile True: pass"}, h)
	if err != nil || r.EndedBy != guest.Killed {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Run(testContext(t), guest.Script{Code: "1"}, newHost()); err == nil {
		t.Error("a closed context took a script")
	}
}

func TestUnusedProcessesEnd(t *testing.T) {
	t.Parallel()
	b := New(Options{Dist: real(t).opts.Dist, KeepIdle: time.Millisecond})
	defer b.Close()
	c := open(t, b, nil)
	n := c.group
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.gone:
	case <-testContext(t).Done():
		t.Error("nobody uses them, and they are still there")
	}
	prints(t, open(t, b, nil), "print('again')", "again\n")
}

func TestFuelIsRefused(t *testing.T) {
	_, err := real(t).Open(context.Background(), guest.Options{FS: newTree(t), Fuel: 1})
	var unavailable *guest.UnavailableError
	if !errors.As(err, &unavailable) {
		t.Errorf("%v, want it refused", err)
	}
}

func TestDoctor(t *testing.T) {
	findings := real(t).Doctor(testContext(t))
	var names []string
	for _, f := range findings {
		names = append(names, f.Name)
		if !f.OK && f.Name != "prepared" {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
	if !slices.Equal(names, []string{"node", "distribution", "fork", "protections", "isolation", "prepared"}) {
		t.Errorf("it looked at %v", names)
	}
	for _, f := range New(Options{Node: "/none/node", Dist: t.TempDir()}).Doctor(testContext(t)) {
		if f.OK && f.Name != "fork" || f.Text == "" {
			t.Errorf("without Node and a distribution: %+v", f)
		}
	}
}

// A preparation stays valid until one of its files changes.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"pyodide.mjs": "1", "pyodide-lock.json": "{}", "node": "n", "pyodide.asm.wasm": "w"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	node := filepath.Join(dir, "node")
	fp := func() string {
		d, err := openDist(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.fingerprint(node)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	last := fp()
	if fp() != last {
		t.Error("it changes by itself")
	}
	for what, change := range map[string]func() error{
		"size":    func() error { return os.WriteFile(filepath.Join(dir, "pyodide.mjs"), []byte("22"), 0o644) },
		"time":    func() error { return os.Chtimes(filepath.Join(dir, "pyodide.asm.wasm"), unixEpoch, unixEpoch) },
		"node":    func() error { return os.Chtimes(node, unixEpoch, unixEpoch) },
		"new one": func() error { return os.WriteFile(filepath.Join(dir, "python_stdlib.zip"), nil, 0o644) },
		"inode": func() error {
			path := filepath.Join(dir, "pyodide.asm.wasm")
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte("w"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(path, unixEpoch, info.ModTime())
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if now := fp(); now == last {
			t.Errorf("a change of %s does not change it", what)
		} else {
			last = now
		}
	}
}

// Only root has to leave files readable to all.
func TestUnreadableDistributionIsRefused(t *testing.T) {
	if unix.Getuid() != 0 {
		skiptest.Missing(t, "only where this process is root")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"pyodide.mjs": "export const x = 1", "pyodide-lock.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := New(Options{Dist: dir, CacheDir: t.TempDir()})
	defer b.Close()
	if _, err := b.Prepare(testContext(t), guest.Setup{}); !errors.Is(err, errUnreadable) {
		t.Errorf("%v", err)
	}
}
