//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// routes are the ways from Python to JavaScript. None of them is closed, and
// none needs to be: each leads into the same cell.
var routes = map[string]string{
	"import js":       "import js\nf = js.Function.new('code', 'return eval(code)')",
	"run_js":          "from pyodide.code import run_js\nf = run_js('(code) => eval(code)')",
	"constructor":     "from pyodide.ffi import to_js\nf = to_js([1]).constructor.constructor('code', 'return eval(code)')",
	"pyodide_js":      "import pyodide_js\nf = pyodide_js.constructor.constructor('code', 'return eval(code)')",
	"own module":      "import _spool\nf = _spool.call.constructor('code', 'return eval(code)')",
	"fresh import":    "import sys, importlib\nsys.modules.pop('js', None)\nf = importlib.import_module('js').eval",
	"the module's FS": "import pyodide_js\nf = pyodide_js.FS.constructor.constructor('code', 'return eval(code)')",
}

// attempts are what one would do in JavaScript to get at the machine. Each is a
// function that returns what it got.
const attempts = `
((want) => {
  const load = (name) => process.getBuiltinModule ? process.getBuiltinModule(name) : process.mainModule.require(name);
  const fs = load('fs'), cp = load('child_process');
  const all = {
    env: () => JSON.stringify(process.env),
    secret: () => fs.readFileSync(want.file, 'utf8'),
    passwd: () => fs.readFileSync('/etc/passwd', 'utf8'),
    proc: () => fs.readFileSync('/proc/self/environ', 'utf8'),
    parent: () => fs.readFileSync('/proc/1/environ', 'utf8'),
    root: () => fs.readdirSync('/').sort().join(),
    lib: () => fs.readdirSync('/usr').sort().join(),
    home: () => fs.readdirSync('/root').join(),
    up: () => fs.readFileSync('/pyodide/../../../../../../..' + want.file, 'utf8'),
    exec: () => cp.execSync('id').toString(),
    spawn: () => { const r = cp.spawnSync('/node', ['-p', '"spawned"']); if (r.error) throw r.error; return String(r.stdout); },
    fork: () => { cp.fork('/runner.mjs'); return 'forked'; },
    worker: () => { new (load('worker_threads').Worker)('1', { eval: true }); return 'thread'; },
    dlopen: () => { process.dlopen({ exports: {} }, '/lib/x86_64-linux-gnu/libc.so.6'); return 'loaded'; },
    kill: () => { process.kill(-1, 'SIGKILL'); return 'killed'; },
    init: () => { process.kill(1, 'SIGKILL'); return 'killed'; },
    write: () => { fs.writeFileSync('/pyodide/pyodide.mjs', 'poisoned'); return 'written'; },
    make: () => { fs.writeFileSync('/left', 'x'); return 'written'; },
    temp: () => { fs.mkdtempSync('/tmp/x'); return 'made'; },
    runner: () => { fs.appendFileSync('/runner.mjs', 'x'); return 'written'; },
    chmod: () => { fs.chmodSync('/pyodide', 0o777); return 'changed'; },
    link: () => { fs.symlinkSync('/etc/passwd', '/pyodide/link'); return 'linked'; },
    chroot: () => { process.chdir('/..'); return fs.readdirSync('.').sort().join(); },
    uid: () => { process.setuid(12345); return 'changed'; },
    binding: () => { const b = process.binding('fs'); return b.internalModuleReadJSON ? 'binding ' + b.internalModuleReadJSON(want.file) : 'none'; },
    fds: () => {
      const found = [];
      for (let fd = 0; fd < 1024; fd++) {
        try {
          const s = fs.fstatSync(fd);
          if (s.isFile() || s.isDirectory()) { const b = Buffer.alloc(4096); found.push(fd + ':' + b.toString('utf8', 0, fs.readSync(fd, b, 0, 4096, 0))); }
        } catch (e) { if (e.code !== 'EBADF') found.push(fd + ' ' + e.code); }
      }
      return found.join();
    },
    connect: () => { const s = load('net').connect(want.port, '127.0.0.1'); s.on('error', () => {}); return 'asked'; },
    datagram: () => { const s = load('dgram').createSocket('udp4'); s.on('error', () => {}); s.send('x', want.port, '127.0.0.1'); return 'asked'; },
  };
  const got = {};
  for (const [name, f] of Object.entries(all)) {
    try { got[name] = 'got ' + f(); } catch (e) { got[name] = 'failed ' + (e.code ?? e.name); }
  }
  return JSON.stringify(got);
})`

// allowedResults are the attempts that get something, and what.
var allowedResults = map[string]string{
	"env":    "got {}",
	"root":   "got dev,lib,lib64,node,pyodide",
	"chroot": "got dev,lib,lib64,node,pyodide",
	"fds":    "got ",
	// It found no file.
	"binding": "got binding ",
	// They ask the event loop, which never runs.
	"connect":  "got asked",
	"datagram": "got asked",
}

// Every route leads to JavaScript, and JavaScript leads nowhere.
func TestJavaScriptCannotEscape(t *testing.T) {
	dir := t.TempDir()
	secret := "the-secret-" + filepath.Base(dir)
	file := filepath.Join(dir, "secret.txt")
	if err := os.WriteFile(file, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPOOL_TEST_SECRET", secret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// Descriptors that a careless parent leaves open are not inherited.
	leak, err := unix.Open(file, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	b := New(Options{Dist: real(t).opts.Dist}) // it started with the descriptor open
	defer b.Close()
	bystander := open(t, b, nil)
	prints(t, bystander, "x = 1", "")
	want, err := json.Marshal(map[string]any{"file": file, "port": listener.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	for name, route := range routes {
		c := open(t, b, nil)
		r, h := do(t, c, fmt.Sprintf("%s\nprint(f(%q + '(' + %q + ')'))", route, attempts, want))
		var got map[string]string
		if err := json.Unmarshal([]byte(h.stdout()), &got); err != nil {
			t.Errorf("%s: %+v, stdout %q, stderr %q", name, r, h.stdout(), h.stderr())
			continue
		}
		for what, result := range got {
			if ok, is := allowedResults[what]; is && result == ok {
				continue
			}
			if !strings.HasPrefix(result, "failed ") {
				t.Errorf("%s: %s: %s", name, what, result)
			}
		}
		if strings.Contains(h.stdout()+h.stderr(), secret) {
			t.Errorf("%s: saw the secret: %s", name, h.stdout())
		}
		prints(t, bystander, "print(x)", "1\n")
	}
	if err := listener.(*net.TCPListener).SetDeadline(unixEpoch); err != nil {
		t.Fatal(err)
	}
	if c, err := listener.Accept(); err == nil {
		c.Close()
		t.Error("somebody got through to the machine's network")
	}
}

// What a script does to its process is gone with it.
func TestForksShareNothing(t *testing.T) {
	b := real(t)
	one, two := open(t, b, nil), open(t, b, nil)
	prints(t, one, `
import js, sys, json, os
js.eval("globalThis.left = 1; Array.prototype.left = 1; JSON.parse = () => 'poisoned'")
sys.left = 1
json.dumps = None
open("/lib/left.txt", "w").write("x")
open("/workspace/left.txt", "w").write("x")
os.environ["LEFT"] = "1"
`, "")
	for _, c := range []*box{two, open(t, b, nil), open(t, b, func(o *guest.Options) { o.Fresh = true })} {
		prints(t, c, `
import js, sys, json, os
print(js.eval("String([globalThis.left, [].left, JSON.parse('1')])"), hasattr(sys, "left"), json.dumps(1), os.path.exists("/lib/left.txt"), os.listdir("."), "LEFT" in os.environ)
`, ",,1 False 1 False [] False\n")
	}
}

// A script that speaks for itself on the connection hurts itself.
func TestHostileFrames(t *testing.T) {
	b := real(t)
	bystander := open(t, b, nil)
	prints(t, bystander, "x = 1", "")
	for what, js := range map[string]string{
		"no operation":           "Buffer.from([0,0,0,0,200,0,0,0])",
		"a frame without end":    "Buffer.from([255,255,255,255,1,0,0,0])",
		"a path operation alone": "Buffer.from([3,0,0,0,9,0,0,0,1,0,65])",
		"a torn pair":            "Buffer.from([5,0,0,0,9,0,0,0,7,255,255,255,255])",
		"a torn ask":             "Buffer.from([4,0,0,0,4,0,0,0,255,255,255,255])",
		"a short read":           "Buffer.from([1,0,0,0,3,0,0,0,1])",
		"a result that is none":  "Buffer.from([1,0,0,0,6,0,0,0,65])",
		"times that are none":    "Buffer.from([6,0,0,0,9,0,0,0,11,1,0,0,0,47])",
		"no file call":           "Buffer.from([0,0,0,0,9,0,0,0])",
		"an unknown file call":   "Buffer.from([5,0,0,0,9,0,0,0,200,1,0,0,0])",
		"a size of -1":           "Buffer.from([14,0,0,0,9,0,0,0,13,255,255,255,255,255,255,255,255,1,0,0,0,47])",
	} {
		c := open(t, b, nil)
		r, h := do(t, c, "import js\njs.eval(\"process.getBuiltinModule('fs').writeSync(3, "+js+")\")\nwhile True: pass")
		if r.EndedBy != guest.Crashed || !r.Lost {
			t.Errorf("%s: %+v, stderr %q", what, r, h.stderr())
		}
		prints(t, c, "print('again')", "again\n")
	}
	prints(t, bystander, "print(x)", "1\n")
}

// The size of what a script reports is bounded, even if it lies about it.
func TestForgedResults(t *testing.T) {
	c := open(t, real(t), nil)
	r, _ := do(t, c, `
import js
js.eval("""const b = Buffer.from(JSON.stringify({exit_code: 70000, value: 'forged'})), h = Buffer.alloc(8);
h.writeUInt32LE(b.length, 0); h[4] = 6; process.getBuiltinModule('fs').writeSync(3, Buffer.concat([h, b]))""")
`)
	if r.ExitCode < 0 || r.ExitCode > 255 {
		t.Errorf("exit code %d", r.ExitCode)
	}
}
