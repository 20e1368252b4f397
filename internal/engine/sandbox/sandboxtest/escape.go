package sandboxtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// escapes are attempts to get at the machine. None may show a secret of it,
// reach a socket of it, or leave something behind.
var escapes = []test{
	{"host_files", attempt(`
import os
for p in (SECRET_FILE, SECRET_DIR, "/etc/passwd", "/etc/shadow", "/root", "/home", "/proc/self/environ", "/proc/1/cmdline", "/sys", "/dev/mem"):
    for f in (lambda: open(p, "rb").read(), lambda: os.listdir(p), lambda: os.stat(p), lambda: os.readlink(p)):
        try:
            show(p, f())
        except BaseException as e:
            show(type(e).__name__)
`)},
	{"processes", attempt(`
import os, subprocess
for f in (
    lambda: os.system("cat " + SECRET_FILE + "; touch " + SECRET_DIR + "/left"),
    lambda: os.popen("cat " + SECRET_FILE).read(),
    lambda: subprocess.run(["cat", SECRET_FILE], capture_output=True),
    lambda: subprocess.Popen(["cat", SECRET_FILE], stdout=subprocess.PIPE).communicate(),
    lambda: subprocess.check_output("cat " + SECRET_FILE, shell=True),
    lambda: os.fork(),
    lambda: os.posix_spawn("/bin/cat", ["cat", SECRET_FILE], {}),
    lambda: os.execv("/bin/cat", ["cat", SECRET_FILE]),
    lambda: os.kill(1, 9),
    lambda: __import__("multiprocessing").Process(target=print).start(),
    lambda: __import__("_posixsubprocess"),
):
    try:
        show(f())
    except BaseException as e:
        show(type(e).__name__)
`)},
	{"sockets_to_loopback", attempt(`
import socket
def tcp():
    s = socket.socket(); s.settimeout(1); s.connect(("127.0.0.1", PORT)); s.sendall(b"GET / HTTP/1.0\r\n\r\n"); return s.recv(1000)
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", PORT)); return "sent"
def unix():
    s = socket.socket(socket.AF_UNIX); s.connect(SECRET_DIR + "/socket"); return "connected"
def http():
    import urllib.request; return urllib.request.urlopen("http://127.0.0.1:%d/" % PORT).read()
def client():
    import http.client; c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=1); c.request("GET", "/"); return c.getresponse().read()
def create():
    return socket.create_connection(("127.0.0.1", PORT), 1)
def listen():
    s = socket.socket(); s.bind(("0.0.0.0", 0)); s.listen(); return "listening"
for f in (tcp, udp, unix, http, client, create):
    try:
        show(f())
    except BaseException as e:
        show(type(e).__name__)
`)},
	{"javascript", attempt(`
routes = []
def route(f):
    routes.append(f)
@route
def _(): import js; return js.process.env.to_py()
@route
def _(): import pyodide_js; return pyodide_js.FS.readFile(SECRET_FILE)
@route
def _():
    from pyodide.ffi import to_js
    F = to_js([1]).constructor.constructor
    return F("return process.env.SPOOL_SANDBOX_SECRET || globalThis.process.getBuiltinModule('fs').readFileSync('" + SECRET_FILE + "', 'utf8')")()
@route
def _():
    from pyodide.code import run_js
    return run_js("(async () => (await import('node:fs')).readFileSync('" + SECRET_FILE + "', 'utf8'))()")
@route
def _():
    from pyodide.code import run_js
    return run_js("process.binding('fs')") or run_js("process.mainModule.require('child_process').execSync('cat " + SECRET_FILE + "').toString()")
@route
def _():
    from pyodide.code import run_js
    return run_js("new (process.getBuiltinModule('net').Socket)().connect(" + str(PORT) + ", '127.0.0.1')")
@route
def _():
    from pyodide.code import run_js
    return run_js("process.getBuiltinModule('child_process').execSync('cat " + SECRET_FILE + "; touch " + SECRET_DIR + "/left').toString()")
@route
def _():
    import sys, importlib; sys.modules.pop("js", None); return importlib.import_module("js").Object.constructor("return process")().env.to_py()
@route
def _():
    import pyodide_js; return pyodide_js._module.HEAP8.buffer.constructor.constructor("return process.env.SPOOL_SANDBOX_SECRET")()
for f in routes:
    try:
        show(f())
    except BaseException as e:
        show(type(e).__name__)
`)},
	{"proc", attempt(`
import os
for p in ("/proc/self/environ", "/proc/self/root" + SECRET_FILE, "/proc/self/cwd", "/proc/self/fd", "/proc/self/maps", "/proc/self/mem", "/proc/1/environ", "/proc/1/root" + SECRET_FILE, "/dev/fd/3"):
    for f in (lambda: open(p, "rb").read(65536), lambda: os.listdir(p), lambda: os.readlink(p)):
        try:
            show(p, f())
        except BaseException as e:
            show(type(e).__name__)
for fd in range(3, 64):
    try:
        show(fd, os.read(fd, 4096))
    except BaseException:
        pass
`)},
	{"environment_secrets", attempt(`
import os, sys
show(dict(os.environ), os.getenv("SPOOL_SANDBOX_SECRET"), sys.argv, sys.path, sys.executable, sys.prefix)
try:
    show(os.environb)
except BaseException as e:
    show(type(e).__name__)
`)},
	{"traversal", attempt(`
import os
targets = [SECRET_FILE, "/mnt/../" + SECRET_FILE, "/mnt/" + "../" * 30 + SECRET_FILE, "/mnt/link", "/mnt/up/secret.txt", "/mnt/abs/secret.txt"]
for i, t in enumerate((SECRET_FILE, SECRET_DIR, "../" * 30 + SECRET_FILE[1:], "/")):
    try:
        os.symlink(t, "/mnt/made%d" % i)
    except OSError as e:
        show(type(e).__name__)
    targets += ["/mnt/made%d" % i, "/mnt/made%d/secret.txt" % i, "/mnt/made%d" % i + SECRET_FILE]
for t in targets:
    for f in (lambda: open(t).read(), lambda: os.listdir(t), lambda: open(os.open(t, os.O_RDONLY)).read()):
        try:
            show(t, f())
        except BaseException as e:
            show(type(e).__name__)
try:
    os.chdir("/mnt"); os.chdir("../../../../.."); show(open("." + SECRET_FILE).read())
except BaseException as e:
    show(type(e).__name__)
`)},
	{"writing_outside", attempt(`
import os, shutil
for t in (SECRET_FILE, SECRET_DIR + "/left", "/etc/left", "/mnt/link", "/mnt/up/left", "/mnt/abs/left", "/mnt/../" + SECRET_DIR + "/left"):
    for f in (
        lambda: open(t, "w").write("overwritten"), lambda: open(t, "a").write("appended"), lambda: os.unlink(t), lambda: os.rename(t, "/mnt/stolen"),
        lambda: os.rename("/mnt/own.txt", t), lambda: os.mkdir(t + ".d"), lambda: os.chmod(t, 0), lambda: os.truncate(t, 0),
        lambda: os.link(t, "/mnt/hard"), lambda: open("/mnt/hard").read(), lambda: shutil.rmtree(os.path.dirname(t)), lambda: os.utime(t, (0, 0)),
    ):
        try:
            show(f())
        except BaseException as e:
            show(type(e).__name__)
`)},
	{"poisoning_the_next_run", poisoning},
}

// A variable of this process that no guest may see.
const (
	secretName  = "SPOOL_SANDBOX_SECRET"
	secretValue = "the-secret-in-the-environment-of-the-machine"
)

// trap is a machine with something to find.
type trap struct {
	dir    string // outside of what is offered
	secret string
	mount  string // offered
	conns  atomic.Int32
	port   int
}

func setTrap(t *testing.T) *trap {
	t.Helper()
	top := t.TempDir()
	tr := &trap{dir: filepath.Join(top, "outside"), mount: filepath.Join(top, "offered"), secret: "the-secret-of-" + filepath.Base(top) + "-of-the-machine"}
	for _, dir := range []string{tr.dir, tr.mount} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range map[string]string{filepath.Join(tr.dir, "secret.txt"): tr.secret, filepath.Join(tr.mount, "own.txt"): "own"} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": filepath.Join(tr.dir, "secret.txt"), "up": "../outside", "abs": tr.dir} {
		if err := os.Symlink(target, filepath.Join(tr.mount, link)); err != nil {
			t.Fatal(err)
		}
	}
	tcp, udp := listenBoth(t)
	tr.port = tcp.Addr().(*net.TCPAddr).Port
	unix, err := net.Listen("unix", filepath.Join(tr.dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 3)
	for _, l := range []net.Listener{tcp, unix} {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				tr.conns.Add(1)
				_, _ = c.Write([]byte(tr.secret))
				_ = c.Close()
			}
		}()
	}
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			if _, _, err := udp.ReadFrom(make([]byte, 16)); err != nil {
				return
			}
			tr.conns.Add(1)
		}
	}()
	t.Cleanup(func() {
		_ = tcp.Close()
		_ = udp.Close()
		_ = unix.Close()
		for range 3 {
			<-done
		}
	})
	return tr
}

// listenBoth listens to TCP and UDP at one port. A port that is free for one may be
// in use for the other.
func listenBoth(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp
		}
		_ = tcp.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// check fails if anything of the machine was seen or changed.
func (tr *trap) check(t *testing.T, e ended) {
	t.Helper()
	all := e.stdout + e.stderr + text(e.done)
	for _, ev := range e.events {
		all += string(ev.Data)
	}
	for _, bad := range []string{tr.secret, secretValue, "root:x:0", "root:*:", "uid=", os.Getenv("PATH")} {
		if bad != "" && strings.Contains(all, bad) {
			t.Errorf("the guest saw %q:\n%s", bad, all)
		}
	}
	if n := tr.conns.Load(); n > 0 {
		t.Errorf("the guest reached sockets of the machine %d times", n)
	}
	content, err := os.ReadFile(filepath.Join(tr.dir, "secret.txt"))
	if err != nil || string(content) != tr.secret {
		t.Errorf("the machine's file is now %q, %v", content, err)
	}
	list, err := os.ReadDir(tr.dir)
	if err != nil || len(list) != 2 {
		t.Errorf("outside there is now %v, %v", list, err)
	}
	for _, path := range []string{"/etc/left", "/etc/left.d"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the guest made %s on the machine", path)
		}
	}
	if e.done.Outcome != spool.TurnOK {
		t.Logf("the attempt ended %s; stderr %q", text(e.done), e.stderr)
	}
	if e.stdout == "" && e.done.EndedBy == "" {
		t.Errorf("the attempt said nothing: done %s, stderr %q", text(e.done), e.stderr)
	}
}

// attempt is a test that runs code which shows what it finds.
func attempt(code string) func(t *testing.T, s Subject) {
	return func(t *testing.T, s Subject) {
		tr := setTrap(t)
		b := newLab(t, s).start(func(spec *spool.Spec, c *python.SandboxConfig) {
			c.Mounts = []python.Mount{{Host: tr.mount, Guest: "/mnt", Mode: python.MountReadWrite}}
			c.Limits.WallMs = 60_000
		})
		prelude := fmt.Sprintf("SECRET_FILE, SECRET_DIR, PORT = %q, %q, %d\n", filepath.Join(tr.dir, "secret.txt"), tr.dir, tr.port) +
			"def show(*what):\n    print(*(repr(w)[:2000] for w in what), flush=True)\nshow('trying')\n"
		tr.check(t, b.do(prelude+code))
		b.alive()
	}
}

// poisoning tries to change what the next interpreter is made of.
func poisoning(t *testing.T, s Subject) {
	tr := setTrap(t)
	l := newLab(t, s)
	b := l.start(nil)
	e := b.do(`
import sys, os, builtins
print('trying')
json = __import__('json')
places = set(sys.path) | {os.path.dirname(getattr(m, '__file__', None) or '/none') for m in list(sys.modules.values())}
for place in places:
    for f in (
        lambda: open(os.path.join(place, 'json.py'), 'w').write('print("poisoned")'),
        lambda: open(os.path.join(place, 'sitecustomize.py'), 'w').write('print("poisoned")'),
        lambda: open(place, 'r+b').write(b'poisoned'),
        lambda: os.unlink(place),
        lambda: os.rename(place, place + '.old'),
        lambda: os.mkdir(os.path.join(place, 'poisoned')),
    ):
        try:
            f()
        except BaseException:
            pass
for root in ('/', '/lib', '/usr', '/tmp', '/cache', '/dev'):
    try:
        for d, dirs, files in os.walk(root):
            for name in files[:50]:
                try:
                    with open(os.path.join(d, name), 'r+b') as f: f.write(b'poisoned')
                except BaseException:
                    pass
    except BaseException:
        pass
builtins.print = lambda *a, **k: None
json.dumps = lambda *a: 'poisoned'
os.environ['POISONED'] = '1'
sys.path.insert(0, '/tmp')
try:
    from pyodide.code import run_js
    run_js("globalThis.poisoned = 1; Object.prototype.poisoned = 1; for (const p of ['pyodide.asm.wasm', 'python_stdlib.zip', 'pyodide.mjs', 'pyodide.asm.js']) { for (const d of ['/', '/dist/', '/pyodide/', './']) { try { process.getBuiltinModule('fs').writeFileSync(d + p, 'poisoned') } catch {} } }")
except BaseException:
    pass
`)
	tr.check(t, e)
	for range 2 {
		next := l.start(nil)
		next.prints(`
import json, os, sys
found = [k for k in os.environ if 'POISON' in k] + [p for p in sys.path if 'poison' in p] + [p for p in os.listdir('/tmp')]
try:
    from pyodide.code import run_js
    found += [x for x in (run_js("globalThis.poisoned ?? ({}).poisoned"),) if x == 1]
except ImportError:
    pass
print(json.dumps([1]), found)
`, "[1] []\n")
	}
	s.shared = nil
	again := newLab(t, s).start(nil)
	again.prints("import json, decimal\nprint(json.dumps([2]))", "[2]\n")
}
