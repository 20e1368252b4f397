package wasipy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

func TestRunsCodeAndStreamsStdio(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		h.stdin = make(chan []byte, 1)
		h.stdin <- []byte("from the host\n")
		close(h.stdin)
		res := runWith(t, c, "import sys\nprint('out', input())\nprint('err', file=sys.stderr)", h)
		if res.ExitCode != 0 || h.stdout() != "out from the host\n" || h.stderr() != "err\n" {
			t.Fatalf("%+v %q %q", res, h.stdout(), h.stderr())
		}
		if h.started != 1 || h.startup.Duration <= 0 || h.startup.Interpreter <= 0 || h.startup.Interpreter > h.startup.Duration {
			t.Errorf("started %d times, %+v", h.started, h.startup)
		}
	})
}

func TestOutputIsByteExact(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		for code, want := range map[string]string{
			`print("\n\na\n")`: "\n\na\n\n",
			`print("Loading x"); print("no end", end="")`:    "Loading x\nno end",
			`import os; os.write(1, bytes(range(256)))`:      string(allBytes()),
			`import sys; sys.stdout.buffer.write(b"\0\xff")`: "\x00\xff",
			`print("é €", "\U0001f40d")`:                     "é € \U0001f40d\n",
			`print("x" * 3000000)`:                           strings.Repeat("x", 3000000) + "\n",
			`for i in range(20000): print(i)`:                numbers(20000),
		} {
			res, h := run(t, c, code)
			if res.ExitCode != 0 || h.stdout() != want {
				t.Errorf("%s: %+v, %d bytes, want %d; %s", code, res, len(h.stdout()), len(want), h.stderr())
			}
		}
	})
}

func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestEmitsStdoutBeforeExit(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		h.stdin = make(chan []byte)
		over := make(chan guest.Result)
		go func() {
			res, _ := c.Run(context.Background(), guest.Script{Code: "print('first', end='')\ninput()\nprint('second')"}, h)
			over <- res
		}()
		h.await(t, "first")
		if strings.Contains(h.stdout(), "second") {
			t.Error("it did not wait")
		}
		close(h.stdin)
		res := <-over
		if res.ExitCode != 1 || res.Exception == nil || res.Exception.Name != "EOFError" {
			t.Errorf("%+v", res)
		}
	})
}

func TestKeepsStreamingStdinSessionsAliveUntilClosed(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		h.stdin = make(chan []byte)
		over := make(chan guest.Result)
		go func() {
			res, err := c.Run(context.Background(), guest.Script{Code: "import sys\nfor line in sys.stdin:\n    print('got', line.strip())\nprint('end')"}, h)
			if err != nil {
				t.Error(err)
			}
			over <- res
		}()
		for n := range 3 {
			h.stdin <- fmt.Appendf(nil, "line %d\n", n)
			h.await(t, fmt.Sprintf("got line %d\n", n))
		}
		select {
		case res := <-over:
			t.Fatalf("ended while its input was open: %+v", res)
		default:
		}
		close(h.stdin)
		if res := <-over; res.ExitCode != 0 || !strings.HasSuffix(h.stdout(), "end\n") {
			t.Errorf("%+v %q", res, h.stdout())
		}
	})
}

func TestExitCodesAreThoseOfTheScript(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{})
		for _, e := range []struct {
			code string
			exit int
			err  string
		}{
			{"import sys; sys.exit(3)", 3, ""},
			{"import sys; sys.exit()", 0, ""},
			{"raise SystemExit('no more')", 1, "no more\n"},
			{"import os; os._exit(4)", 4, ""},
			{"print('still here')", 0, ""},
			{"exit(5)", 5, ""},
		} {
			res, h := run(t, c, e.code)
			if res.ExitCode != e.exit || res.EndedBy != "" || h.stderr() != e.err {
				t.Errorf("%s: %+v %q", e.code, res, h.stderr())
			}
		}
	})
}

func TestSurfacesRuntimeStderr(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		res, err := c.Run(context.Background(), guest.Script{File: "/workspace/bad.py", Code: "def f():\n    raise ValueError('a reason')\nf()"}, h)
		if err != nil {
			t.Fatal(err)
		}
		want := "Traceback (most recent call last):\n  File \"/workspace/bad.py\", line 3, in <module>\n    f()\n"
		if res.ExitCode != 1 || res.Exception == nil || res.Exception.Name != "ValueError" || res.Exception.Message != "a reason" {
			t.Errorf("%+v", res)
		}
		if !strings.HasPrefix(h.stderr(), want) || !strings.HasSuffix(h.stderr(), "ValueError: a reason\n") {
			t.Errorf("stderr %q", h.stderr())
		}
	})
}

func TestContextsPreserveConfiguration(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for _, fresh := range []bool{true, false} {
			c := open(t, i, guest.Options{Fresh: fresh, Cwd: "/workspace", Env: map[string]string{"A": "1", "Ü": "ü"}})
			for range 2 {
				h := newHost()
				res, err := c.Run(context.Background(), guest.Script{
					Code: "import os, sys\nprint(sorted(os.environ.items()), os.getcwd(), sys.argv, __file__, __name__)",
					File: "/workspace/x.py", Args: []string{"a", "b c"},
				}, h)
				want := "[('A', '1'), ('Ü', 'ü')] /workspace ['/workspace/x.py', 'a', 'b c'] /workspace/x.py __main__\n"
				if err != nil || res.ExitCode != 0 || h.stdout() != want {
					t.Errorf("fresh %v: %+v %v %q %q", fresh, res, err, h.stdout(), h.stderr())
				}
			}
		}
	})
}

func TestStatefulContextsKeepTheirStateAndFreshOnesDoNot(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{})
		prints(t, c, "x = 41", "")
		prints(t, c, "print(x + 1)", "42\n")
		if res, _ := run(t, c, "1/0"); res.ExitCode != 1 || res.Lost {
			t.Errorf("%+v", res)
		}
		prints(t, c, "print(x)", "41\n")

		f := open(t, i, guest.Options{Fresh: true})
		for range 5 {
			prints(t, f, "import builtins, sys, os\nprint('x' in globals(), hasattr(builtins, 'mark'), 'mark' in sys.modules, os.environ.get('MARK'))\n"+
				"x = 1; builtins.mark = 1; sys.modules['mark'] = sys; os.environ['MARK'] = '1'", "False False False None\n")
		}
	})
}

func TestCellsHaveAValue(t *testing.T) {
	c := open(t, python.IsolateStrict, guest.Options{})
	res, err := c.Run(context.Background(), guest.Script{Code: "a = 20\na * 2 + 2", Cell: true}, newHost())
	if err != nil || res.Value == nil || *res.Value != "42" {
		t.Errorf("%+v %v", res, err)
	}
	h := newHost()
	res, err = c.Run(context.Background(), guest.Script{Code: "import asyncio\nawait asyncio.sleep(0.001, 'slept')", Cell: true}, h)
	if err != nil || res.Value == nil || *res.Value != "'slept'" {
		t.Errorf("%+v %v %s", res, err, h.stderr())
	}
}

func TestTheStandardLibraryWorks(t *testing.T) {
	c := open(t, python.IsolateStrict, guest.Options{Fresh: true})
	prints(t, c, "import zlib, bz2, gzip\nb = b'spool' * 1000\nprint(zlib.decompress(zlib.compress(b)) == b, bz2.decompress(bz2.compress(b)) == b, gzip.decompress(gzip.compress(b)) == b)", "True True True\n")
	prints(t, c, "import sqlite3\nfor name in (':memory:', '/tmp/x.db'):\n    d = sqlite3.connect(name)\n    d.execute('create table t(a, b)')\n"+
		"    d.executemany('insert into t values (?, ?)', [(i, str(i)) for i in range(1000)])\n    d.commit()\n    print(d.execute('select sum(a), max(length(b)) from t').fetchone())\n    d.close()\n"+
		"print(sqlite3.connect('/tmp/x.db').execute('select count(*) from t').fetchone())", "(499500, 3)\n(499500, 3)\n(1000,)\n")
	prints(t, c, "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.002 * n)\n    return n\nasync def main(): return await asyncio.gather(*(f(n) for n in range(5)))\nprint(asyncio.run(main()))", "[0, 1, 2, 3, 4]\n")
	prints(t, c, "import hashlib, decimal, json, re, datetime, xml.etree.ElementTree as e\nprint(hashlib.sha256(b'').hexdigest()[:8], decimal.Decimal(1) / 3, json.loads('[1]'), re.sub('a+', 'b', 'aac'), datetime.date(2020, 1, 1), e.fromstring('<a b=\"c\"/>').get('b'))",
		"e3b0c442 0.3333333333333333333333333333 [1] bc 2020-01-01 c\n")
	prints(t, c, `import importlib
names = """abc argparse array ast asyncio base64 bisect calendar cmath code codecs collections colorsys compileall concurrent.futures
configparser contextlib contextvars copy csv dataclasses datetime decimal difflib dis doctest email enum errno faulthandler filecmp
fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http imaplib
importlib inspect io ipaddress itertools json keyword linecache locale logging lzma mailbox math mimetypes modulefinder numbers
operator optparse os pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats py_compile
queue quopri random re reprlib rlcompleter runpy sched secrets select selectors shelve shlex shutil signal smtplib socket
socketserver sqlite3 ssl stat statistics string stringprep struct subprocess symtable sys sysconfig tabnanny tarfile tempfile
textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc types typing unicodedata unittest urllib.request
uuid warnings wave weakref wsgiref xml xmlrpc zipapp zipfile zipimport zlib zoneinfo bz2""".split()
missing = []
for n in names:
    try: importlib.import_module(n)
    except ImportError: missing.append(n)
print(missing)`, "['lzma', 'ssl']\n")
}

func TestEntropyClocksAndSleepAreRealAfterRestore(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		const code = "import os, random, uuid, secrets, tempfile\nprint(os.urandom(16).hex(), random.random(), uuid.uuid4(), secrets.token_hex(8), random.SystemRandom().random())"
		seen := make(map[string]bool)
		for range 8 {
			res, h := run(t, c, code)
			if res.ExitCode != 0 {
				t.Fatalf("%+v %s", res, h.stderr())
			}
			for _, word := range strings.Fields(h.stdout()) {
				if seen[word] {
					t.Errorf("%s came twice", word)
				}
				seen[word] = true
			}
		}
		_, h := run(t, c, "import time\na, b = time.monotonic(), time.perf_counter()\ntime.sleep(0.02)\nprint(time.time(), time.monotonic() - a >= 0.02, time.perf_counter() - b >= 0.02, time.process_time() < 10)")
		var now float64
		var rest string
		if _, err := fmt.Sscanf(h.stdout(), "%f %s", &now, &rest); err != nil {
			t.Fatalf("%q %q: %v", h.stdout(), h.stderr(), err)
		}
		if d := time.Since(time.UnixMicro(int64(now * 1e6))); d < 0 || d > patience {
			t.Errorf("its clock is off by %v", d)
		}
		if !strings.HasSuffix(h.stdout(), " True True True\n") {
			t.Errorf("%q", h.stdout())
		}
	})
}

func TestSurfacesRPCRequestsAndResumesAfterResponses(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		var asked []string
		h.ask = func(_ context.Context, kind string, payload []byte) []byte {
			var p struct {
				Path string `json:"path"`
			}
			if err := json.Unmarshal(payload, &p); err != nil {
				t.Errorf("payload %s: %v", payload, err)
			}
			asked = append(asked, kind+" "+p.Path)
			switch kind {
			case "fs.read":
				return guest.Reply{Value: json.RawMessage(`{"content_base64":"aGVsbG8="}`)}.Encode()
			case "fs.stat":
				return guest.Reply{Error: &guest.ReplyError{Code: "ENOENT", Message: "no such thing"}}.Encode()
			}
			return guest.Reply{Value: json.RawMessage(`{}`)}.Encode()
		}
		res := runWith(t, c, "import spool, errno\nspool.fs.mkdir('/w')\nspool.fs.write('/w/a', b'hello')\nprint(spool.fs.read('/w/a'))\n"+
			"try: spool.fs.stat('/w/b')\nexcept FileNotFoundError as e: print(e.errno == errno.ENOENT, e.filename)\n", h)
		if res.ExitCode != 0 || h.stdout() != "b'hello'\nTrue /w/b\n" {
			t.Errorf("%+v %q %q", res, h.stdout(), h.stderr())
		}
		if got := strings.Join(asked, ", "); got != "fs.mkdir /w, fs.write /w/a, fs.read /w/a, fs.stat /w/b" {
			t.Errorf("asked %s", got)
		}
	})
}

func TestFilesAreThoseOfTheContext(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		fsys := memory()
		c := open(t, i, guest.Options{FS: fsys, Cwd: "/workspace", OpenFiles: 32})
		prints(t, c, `
import os, shutil, pathlib, stat
p = pathlib.Path('a/b'); p.mkdir(parents=True)
f = p / 'c.txt'
f.write_text('one\n')
with open(f, 'a') as o: o.write('two\n')
with open(f, 'r+b') as o:
    o.seek(4); o.write(b'TWO'); o.seek(0, 2); print(o.tell()); o.truncate(7)
print(repr(f.read_text()), f.stat().st_size)
os.rename(f, 'd.txt'); os.symlink('d.txt', 'link')
print(os.readlink('link'), os.path.islink('link'), open('link').read(3), sorted(os.listdir('.')))
os.chmod('d.txt', 0o600); print(oct(os.stat('d.txt').st_mode), oct(os.stat('.').st_mode))
os.utime('d.txt', (1, 2)); print(os.stat('d.txt').st_mtime)
shutil.copy('d.txt', 'e.txt'); shutil.rmtree('a'); os.unlink('link')
print([e.name for e in sorted(os.scandir('.'), key=lambda e: e.name) if e.is_file()])
fd = os.open('e.txt', os.O_RDWR); print(os.pread(fd, 3, 4), os.pwrite(fd, b'xyz', 0), os.read(fd, 3)); os.close(fd)
for n, want in (('nothing', FileNotFoundError), ('d.txt/x', NotADirectoryError)):
    try: open(n)
    except want as e: print(type(e).__name__)
try: os.rmdir('/workspace')
except OSError as e: print(e.errno)
import tempfile
with tempfile.TemporaryDirectory() as d: pathlib.Path(d, 'x').write_bytes(b'x' * 100000); print(os.path.getsize(d + '/x'))
`, "8\n'one\\nTWO' 7\nd.txt True one ['a', 'd.txt', 'link']\n0o100600 0o40755\n2.0\n['d.txt', 'e.txt']\nb'TWO' 3 b'xyz'\nFileNotFoundError\nNotADirectoryError\n55\n100000\n")
		prints(t, c, "fs = []\ntry:\n    for n in range(100): fs.append(open('/tmp/%d' % n, 'w'))\nexcept OSError as e: print(n, e.errno)\nfor f in fs: f.close()\nopen('/tmp/again', 'w').close()", "32 33\n")
		if info, err := fsys.Stat("/workspace/e.txt", true); err != nil || info.Size != 7 {
			t.Errorf("%+v %v", info, err)
		}
	})
}

func TestHundredConcurrentContextsAreIsolated(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		var all sync.WaitGroup
		for n := range 100 {
			c := open(t, i, guest.Options{Cwd: "/workspace"})
			all.Go(func() {
				h := newHost()
				h.stdin = make(chan []byte, 1)
				h.stdin <- fmt.Appendf(nil, "secret %d\n", n)
				close(h.stdin)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				res, err := c.Run(ctx, guest.Script{Code: "x = input()\nopen('file', 'x').write(x)\n"}, h)
				if err != nil || res.ExitCode != 0 {
					t.Errorf("%d: %+v %v %s", n, res, err, h.stderr())
					return
				}
				h = newHost()
				res, err = c.Run(ctx, guest.Script{Code: "import os\nprint(x, open('file').read(), os.listdir('.'))"}, h)
				if want := fmt.Sprintf("secret %d secret %d ['file']\n", n, n); err != nil || res.ExitCode != 0 || h.stdout() != want {
					t.Errorf("%d: %+v %v %q %q", n, res, err, h.stdout(), h.stderr())
				}
			})
		}
		all.Wait()
	})
}

func TestPackagesAreThoseOfTheStandardLibrary(t *testing.T) {
	c := open(t, python.IsolateStrict, guest.Options{Setup: guest.Setup{Packages: []string{"sqlite3", "email.mime.text"}}})
	res, h := run(t, c, "import sys\nprint('sqlite3' in sys.modules, 'email.mime.text' in sys.modules)")
	if res.ExitCode != 0 || h.stdout() != "True True\n" || h.startup.Packages != 2 || h.startup.PackageLoad <= 0 {
		t.Errorf("%+v %q %q %+v", res, h.stdout(), h.stderr(), h.startup)
	}
	_, err := shared.get(t, python.IsolateStrict).Open(context.Background(), guest.Options{FS: memory(), Setup: guest.Setup{Packages: []string{"numpy"}}})
	if u := (*guest.UnavailableError)(nil); !asUnavailable(err, &u) {
		t.Errorf("numpy: %v", err)
	}
}
