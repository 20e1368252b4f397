package wasipy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

// TestEscapeAttemptsAreDenied tries the ways out. Each prints what it got hold
// of, and fails if it got hold of anything.
func TestEscapeAttemptsAreDenied(t *testing.T) {
	const secret = "the host's own secret"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPOOL_TEST_SECRET", secret)
	// Every attempt is code that raises if it is denied.
	attempts := map[string]string{
		"host file":         "print(open('" + dir + "/secret').read())",
		"passwd":            "print(open('/etc/passwd').read())",
		"dot dot":           "print(open('../../../../../../../.." + dir + "/secret').read())",
		"dot dot absolute":  "print(open('/workspace/../..//../" + dir + "/secret').read())",
		"symlink":           "import os\nos.symlink('" + dir + "/secret', '/tmp/l')\nprint(open('/tmp/l').read())",
		"symlink up":        "import os\nos.symlink('../../../../../..', '/tmp/up')\nprint(open('/tmp/up" + dir + "/secret').read())",
		"proc":              "print(open('/proc/self/environ').read(), open('/proc/self/maps').read())",
		"proc listing":      "import os\nprint(os.listdir('/proc'))",
		"dev":               "print(open('/dev/mem', 'rb').read(1))",
		"sys":               "print(open('/sys/kernel/version').read())",
		"system":            "import os\nprint(os.system('id'))",
		"popen":             "import os\nprint(os.popen('id').read())",
		"subprocess":        "import subprocess\nprint(subprocess.check_output(['id']))",
		"Popen":             "import subprocess\nprint(subprocess.Popen(['id']).wait())",
		"fork":              "import os\nprint(os.fork())",
		"exec":              "import os\nos.execv('/bin/sh', ['sh'])",
		"spawn":             "import os\nprint(os.posix_spawn('/bin/sh', ['sh'], {}))",
		"kill":              "import os\nos.kill(1, 9)",
		"multiprocessing":   "import multiprocessing\np = multiprocessing.Process(target=print); p.start(); p.join()",
		"thread":            "import threading\nthreading.Thread(target=print).start()",
		"socket":            "import socket\ns = socket.socket(); s.connect(('127.0.0.1', 22)); print(s.recv(10))",
		"create connection": "import socket\nsocket.create_connection(('127.0.0.1', 22))",
		"listen":            "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
		"inherited socket":  "import socket\nfor fd in range(3, 64):\n    try: print(socket.socket(fileno=fd).recv(1)); break\n    except OSError: pass\nelse: raise OSError",
		"urlopen":           "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1/').read())",
		"lookup":            "import socket\nprint(socket.gethostbyname('localhost'))",
		"ctypes":            "import ctypes\nprint(ctypes.CDLL(None).getpid())",
		"mmap":              "import mmap\nprint(mmap.mmap(-1, 4096))",
		"js":                "import js",
		"pyodide":           "import pyodide",
		"environment":       "import os\nprint(os.environ['SPOOL_TEST_SECRET'])",
		"raw environment":   "import posix\nprint(posix.environ[b'SPOOL_TEST_SECRET'])",
		"write outside":     "open('" + dir + "/new', 'w').write('x')",
		"write library":     "open('/usr/lib/python313.zip', 'r+b').write(b'x')",
		"append library":    "open('/usr/lib/python313.zip', 'ab').write(b'x')",
		"truncate library":  "import os\nos.truncate('/usr/lib/python313.zip', 0)",
		"remove library":    "import os\nos.unlink('/usr/lib/python313.zip')",
		"replace library":   "import os\nopen('/tmp/z', 'w').close()\nos.rename('/tmp/z', '/usr/lib/python313.zip')",
		"descriptors":       "import os\nfor fd in range(4, 256):\n    try: print(fd, os.read(fd, 1)); break\n    except OSError: pass\nelse: raise OSError",
		"root up":           "import os\nfd = os.open('..', os.O_RDONLY, dir_fd=3)\nprint(open(os.open('" + strings.TrimPrefix(dir, "/") + "/secret', os.O_RDONLY, dir_fd=fd)).read())",
		"close root":        "import os\nos.close(3)\nprint(open('/etc/passwd').read())",
		"hard link":         "import os\nos.link('" + dir + "/secret', '/tmp/hard'); print(open('/tmp/hard').read())",
		"chroot":            "import os\nos.chroot('/')",
		"ask":               "import spool\nprint(spool.subprocess.run('id'))",
		"raw ask":           "import _spool, json\nr = json.loads(_spool.call('subprocess.run', '{\"command\":\"id\"}'))\nif 'error' in r: raise PermissionError",
	}
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for name, code := range attempts {
			t.Run(name, func(t *testing.T) {
				c := open(t, i, guest.Options{Fresh: true, Cwd: "/workspace", Env: map[string]string{"HOME": "/"}})
				res, h := run(t, c, code)
				if res.ExitCode == 0 {
					t.Errorf("it got away with it: %q", h.stdout())
				}
				for _, leak := range []string{secret, "root:", "uid="} {
					if strings.Contains(h.stdout()+strings.ReplaceAll(h.stderr(), code, ""), leak) {
						t.Errorf("it got hold of %q: %q %q", leak, h.stdout(), h.stderr())
					}
				}
				if res.EndedBy == guest.Killed {
					t.Errorf("%+v", res)
				}
			})
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("a file came to be outside")
		}
	})
}

// TestScriptsLeaveNoState poisons an interpreter as thoroughly as a
// script can, and looks from the next.
func TestScriptsLeaveNoState(t *testing.T) {
	const poison = `
import builtins, sys, os, json, types, gc, random, io
builtins.print = lambda *a: None
builtins.open = None
json.loads = json.dumps = lambda *a: '{"exit_code": 0}'
sys.modules['_spool_boot'].run = lambda s: '{"exit_code": 7}'
sys.modules['_spool_boot']._run = lambda s: {"exit_code": 7}
sys.path.insert(0, '/tmp')
open = io.open
io.open('/tmp/re.py', 'w').write('raise SystemExit(9)')
sys.setrecursionlimit(100)
sys.excepthook = None
sys.stdout = None
for m in list(sys.modules): sys.modules[m] = None
os.close(1); os.close(2)
gc.disable()
`
	const look = "import json, sys, os\nprint(json.loads('[1]'), sys.getrecursionlimit(), '/tmp' in sys.path, os.listdir('/tmp'))"
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for range 10 {
			bad := open(t, i, guest.Options{Fresh: true})
			run(t, bad, poison)
			c := open(t, i, guest.Options{Fresh: true})
			prints(t, c, look, "[1] 1000 False []\n")
		}
	})
}

// TestCorruptBytecodeIsContained makes the interpreter itself fail.
func TestCorruptBytecodeIsContained(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{})
		res, _ := run(t, c, "def f(): pass\nf.__code__ = f.__code__.replace(co_code=bytes(range(0, 250, 2)) * 40, co_consts=(), co_stacksize=1)\nfor _ in range(3): f()")
		if res.ExitCode == 0 {
			t.Errorf("%+v", res)
		}
		prints(t, c, "print('alive')", "alive\n")
	})
}
