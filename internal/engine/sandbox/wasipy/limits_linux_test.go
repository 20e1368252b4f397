package wasipy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// late is how long after its limit a script may still be there in a test, on a
// machine that does other things too.
const late = time.Minute

// runaways never end by themselves.
var runaways = map[string]string{
	"while True":        "while True: pass",
	"except everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
	"regex":             "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
	"power":             "10**10**9",
	"sum":               "sum(range(10**12))",
	"sleep":             "import time\nwhile True:\n    try: time.sleep(1000)\n    except BaseException: pass",
	"input":             "while True:\n    try: input()\n    except BaseException: pass",
	"output":            "while True: print('x' * 100)",
	"recursion":         "def f():\n    try: f()\n    finally: f()\nwhile True:\n    try: f()\n    except RecursionError: pass",
	"sort":              "l = list(range(10**6))\nwhile True: l.sort(key=lambda x: -x)",
	"compress":          "import zlib\nb = bytes(10**7)\nwhile True: zlib.compress(b, 9)",
	"files":             "import os\nn = 0\nwhile True:\n    try: open('/tmp/%d' % n, 'w').write('x')\n    except OSError: pass\n    n += 1",
	"copies":            "b = bytes(50 * 2**20)\nwhile True: c = b[:-1]",
	"sqlite":            "import sqlite3\nsqlite3.connect(':memory:').execute('with recursive c(x) as (select 1 union all select x+1 from c) select count(*) from c').fetchone()",
	"gc":                "import gc\nl = [[] for _ in range(300000)]\nwhile True: gc.unfreeze(); gc.collect()",
	"hash":              "import hashlib\nb = bytes(10**7)\nwhile True: hashlib.sha256(b)",
	"str":               "import sys\nsys.set_int_max_str_digits(0)\nint('9' * 3000000)",
}

func TestRunawaysAreStoppedInTime(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for name, code := range runaways {
			t.Run(name, func(t *testing.T) {
				c := open(t, i, guest.Options{Fresh: true, FS: vfs.NewTree(tmp())})
				run(t, c, "pass")
				inTime(t, func() time.Duration {
					h := newHost()
					h.stdin = make(chan []byte)
					ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
					defer cancel()
					deadline, _ := ctx.Deadline()
					res, err := c.Run(ctx, guest.Script{Code: code}, h)
					took := time.Since(deadline)
					if err != nil || res.EndedBy != guest.Killed || !res.Lost || took < 0 {
						t.Fatalf("%+v %v %v %s", res, err, took, h.stderr())
					}
					prints(t, c, "print('alive')", "alive\n")
					return took
				})
			})
		}
	})
}

// inTime fails the test if something ends late.
func inTime(t *testing.T, do func() time.Duration) {
	t.Helper()
	if took := do(); took > late {
		t.Errorf("%v late", took)
	}
}

func tmp() *vfs.Memory { return vfs.NewMemory(vfs.NewQuota(0, 0)) }

func TestKillAtAnyTimeEndsAScript(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		for n := range 60 {
			code := []string{"while True: pass", "input()", "import time; time.sleep(100)", "while True: print(1)"}[n%4]
			inTime(t, func() time.Duration {
				ctx, cancel := context.WithCancel(context.Background())
				asked := make(chan time.Time, 1)
				time.AfterFunc(time.Duration(rand.IntN(4000))*time.Microsecond, func() { asked <- time.Now(); cancel() })
				h := newHost()
				h.stdin = make(chan []byte)
				res, err := c.Run(ctx, guest.Script{Code: code}, h)
				if err != nil || res.EndedBy != guest.Killed {
					t.Fatalf("%s: %+v %v", code, res, err)
				}
				return time.Since(<-asked)
			})
		}
		prints(t, c, "print('alive')", "alive\n")
	})
}

func TestDeadlineIsUsed(t *testing.T) {
	c := open(t, python.IsolateStrict, guest.Options{Fresh: true})
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	res, err := c.Run(ctx, guest.Script{Code: "print(1)"}, newHost())
	if err != nil || res.EndedBy != guest.Killed {
		t.Errorf("%+v %v", res, err)
	}
}

func TestUnansweredAskEndsWithTheScript(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		h := newHost()
		h.ask = func(ctx context.Context, _ string, _ []byte) []byte {
			<-ctx.Done()
			return guest.Reply{Error: &guest.ReplyError{Code: guest.CodeTimedOut, Message: "ended"}}.Encode()
		}
		inTime(t, func() time.Duration {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			deadline, _ := ctx.Deadline()
			res, err := c.Run(ctx, guest.Script{Code: "import spool\nwhile True:\n    try: spool.fs.read('/x')\n    except BaseException: pass"}, h)
			if err != nil || res.EndedBy != guest.Killed {
				t.Fatalf("%+v %v", res, err)
			}
			return time.Since(deadline)
		})
	})
}

func TestMemoryIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for _, limit := range []int64{48 << 20, 160 << 20} {
			c := open(t, i, guest.Options{Memory: limit})
			prints(t, c, "l = []\ntry:\n    while True: l.append(bytearray(1 << 20))\nexcept MemoryError:\n    n = len(l); l.clear()\n"+
				fmt.Sprintf("print(%d < n <= %d)", (limit-40<<20)>>20, limit>>20), "True\n")
			prints(t, c, "print('alive', sum(len(bytes(1 << 20)) for _ in range(100)) >> 20)", "alive 100\n")
			for _, bomb := range []string{"x = []\nwhile True: x.append([None] * 100000)", "x = 'a'\nwhile True: x += x", "bytearray(2 * 10**9)", "s = {}\nwhile True: s[len(s)] = bytes(500)"} {
				res, h := run(t, c, bomb)
				if res.EndedBy != guest.Memory || res.ExitCode == 0 || !res.Lost && !strings.Contains(h.stderr(), "MemoryError") {
					t.Errorf("%d, %q: %+v %s", limit, bomb, res, h.stderr())
				}
				if res.PeakMemory > limit {
					t.Errorf("%d, %q: it had %d bytes", limit, bomb, res.PeakMemory)
				}
				run(t, c, "x = s = None") // a smaller one would be a test of what is left
			}
			prints(t, c, "print('alive')", "alive\n")
		}
	})
}

func TestDeepRecursionRaises(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		for _, code := range []string{
			"def f(): f()\nf()",
			"import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
			"import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __getattr__(s, n): return getattr(s, n + 'x')\nA().a",
			"import sys\nsys.setrecursionlimit(10**9)\nl = []\nfor _ in range(10**5): l = [l]\nrepr(l)",
			"import sys\nsys.setrecursionlimit(10**9)\ncompile('(' * 10**5 + ')' * 10**5, 'x', 'exec')",
			"import sys, json\nsys.setrecursionlimit(10**9)\njson.loads('[' * 10**5)",
			"import sys, re\nsys.setrecursionlimit(10**9)\nre.compile('(' * 20000 + ')' * 20000)",
			"import sys, functools\nsys.setrecursionlimit(10**9)\nf = lambda: 1\nfor _ in range(10**5): f = functools.partial(f)\nf()",
			"import pickle, sys\nsys.setrecursionlimit(10**9)\nl = []\nfor _ in range(10**5): l = [l]\npickle.dumps(l)",
		} {
			res, h := run(t, c, code)
			t.Logf("%s: %s %s", code[:min(len(code), 60)], res.EndedBy, h.stderr()[max(0, len(h.stderr())-80):])
			if res.EndedBy == guest.Killed {
				t.Errorf("%s: %+v %s", code, res, h.stderr())
			}
			prints(t, c, "print('alive')", "alive\n")
		}
	})
}

func TestFuelIsDeterministicAndBounds(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		const code = "x = 0\nfor n in range(100000): x += n * n\nprint(x)"
		c := open(t, i, guest.Options{Fresh: true})
		first, _ := run(t, c, code)
		if first.Fuel < 100000 {
			t.Errorf("%+v", first)
		}
		for range 5 {
			if res, _ := run(t, c, code); res.Fuel != first.Fuel {
				t.Errorf("%d, then %d", first.Fuel, res.Fuel)
			}
		}
		bounded := open(t, i, guest.Options{Fresh: true, Fuel: 500_000})
		out := ""
		for range 4 {
			res, h := run(t, bounded, "n = 0\nwhile True:\n    n += 1\n    print(n)")
			if res.EndedBy != guest.Fuel || !res.Lost || res.Fuel < 500_000 || res.Fuel > 520_000 {
				t.Errorf("%+v", res)
			}
			if out == "" {
				out = h.stdout()
			}
			if h.stdout() != out || out == "" {
				t.Errorf("it got as far as %d bytes, then %d", len(out), len(h.stdout()))
			}
		}
		prints(t, bounded, "print('alive')", "alive\n")
	})
}

func TestInterruptRaisesKeyboardInterrupt(t *testing.T) {
	// Before it says go: Python itself swallows an interrupt that lands in a
	// callback of the import machinery.
	const imports = "import time, spool\n"
	everywhere(t, func(t *testing.T, i python.Isolation) {
		for _, code := range []string{"while True: pass", "input()", "time.sleep(1000)", "spool.fs.read('/x')"} {
			c := open(t, i, guest.Options{})
			h := newHost()
			h.stdin = make(chan []byte)
			h.ask = func(ctx context.Context, _ string, _ []byte) []byte {
				<-ctx.Done()
				return guest.Reply{Error: &guest.ReplyError{Code: "EINTR", Message: "interrupted"}}.Encode()
			}
			over := make(chan guest.Result)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				res, err := c.Run(ctx, guest.Script{Code: imports + "x = 1\ntry:\n    print('go')\n    " + code + "\nfinally: print('after')"}, h)
				if err != nil {
					t.Error(err)
				}
				over <- res
			}()
			h.await(t, "go\n")
			if err := c.(guest.Interrupter).Interrupt(); err != nil {
				t.Error(err)
			}
			res := <-over
			if res.Lost || res.ExitCode != 130 || res.Exception == nil || res.Exception.Name != "KeyboardInterrupt" || h.stdout() != "go\nafter\n" {
				t.Errorf("%s: %+v %q %q", code, res, h.stdout(), h.stderr())
			}
			prints(t, c, "import time\ntime.sleep(0.01)\nprint(x)", "1\n")
		}
	})
}

func TestCloseStopsTheScriptThatRuns(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{})
		h := newHost()
		over := make(chan guest.Result)
		go func() {
			res, _ := c.Run(context.Background(), guest.Script{Code: "print('go')\nwhile True: pass"}, h)
			over <- res
		}()
		h.await(t, "go\n")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if res := <-over; res.EndedBy != guest.Killed {
			t.Errorf("%+v", res)
		}
		if _, err := c.Run(context.Background(), guest.Script{}, h); err == nil {
			t.Error("a closed context ran a script")
		}
	})
}

// hasty is a host that has had enough after some output.
type hasty struct {
	*host
	left   int
	cancel context.CancelFunc
}

func (h *hasty) Write(s guest.Stream, p []byte) {
	h.host.Write(s, p)
	if h.left -= len(p); h.left < 0 {
		h.cancel()
	}
}

func TestOutputFloodIsStopped(t *testing.T) {
	everywhere(t, func(t *testing.T, i python.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		h := &hasty{host: newHost(), left: 1 << 20, cancel: cancel}
		res, err := c.Run(ctx, guest.Script{Code: "import os\nwhile True: os.write(1, b'x' * 65536)"}, h)
		if err != nil || res.EndedBy != guest.Killed {
			t.Errorf("%+v %v", res, err)
		}
		if n := len(h.stdout()); n < 1<<20 || n > 64<<20 {
			t.Errorf("%d bytes", n)
		}
	})
}

func TestOversizedScriptIsAnError(t *testing.T) {
	c := open(t, python.IsolateStrict, guest.Options{})
	prints(t, c, "x = 1", "")
	if res, err := c.Run(context.Background(), guest.Script{Code: "#" + strings.Repeat("x", 70<<20)}, newHost()); err == nil {
		t.Errorf("%+v", res)
	}
	prints(t, c, "print(x)", "1\n")
}
