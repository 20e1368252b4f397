//go:build linux

package kernel_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/python"
)

// TestDefects holds what interpreters kept by others were found to do wrong,
// each as what happens here instead.
func TestDefects(t *testing.T) {
	rows := []struct {
		name string
		test func(*testing.T, lab)
	}{
		{"01_clean_shutdown_is_confirmed_and_frees_its_place", cleanShutdown},
		{"02_swallowed_interrupt_still_settles", swallowedInterrupt},
		{"03_bytes_without_line_end_on_fd_1", bytesWithoutLineEnd},
		{"04_child_stdout_arrives_in_order", childStdout},
		{"05_child_stderr_arrives_in_order", childStderr},
		{"06_output_of_threads_arrives", threadOutput},
		{"07_exception_in_a_thread_is_seen", threadException},
		{"08_c_code_that_holds_the_lock_and_writes", heldLock},
		{"09_input_fails_at_once_and_eats_nothing", inputFails},
		{"10_child_that_reads_stdin_sees_its_end", childReadsStdin},
		{"11_interrupted_await_keeps_the_state", interruptedAwait},
		{"12_exception_whose_str_raises", strRaises},
		{"13_lone_surrogate_in_an_exception", surrogateInException},
		{"14_sys_exit_keeps_the_kernel", sysExit},
		{"15_annotations_are_types", annotations},
		{"16_main_is_the_namespace", mainIsNamespace},
		{"17_string_literals_are_not_rewritten", literalsStay},
		{"18_patched_json_does_no_harm", patchedJSON},
		{"19_nan_in_a_display_arrives", nanDisplay},
		{"20_source_lines_and_getsource", sourceLines},
		{"21_stdout_is_a_real_file", realStdout},
		{"22_objects_that_answer_to_everything", answersEverything},
		{"23_asyncio_run_and_top_level_await", bothAsync},
		{"24_context_variables_stay", contextVariables},
		{"25_closing_fd_1_does_no_harm", closedStdout},
		{"26_semicolon_underscore_and_many_displays", semicolon},
		{"27_top_level_await_is_no_empty_promise", topLevelAwait},
		{"28_interrupt_at_the_end_of_a_cell", interruptAtEnd},
	}
	if len(pythons()) == 0 {
		t.Fatal("no Python 3.9 or newer is installed")
	}
	labs := make(map[string]func(t *testing.T) lab)
	for _, path := range pythons() {
		labs[filepath.Base(filepath.Dir(filepath.Dir(path)))+"_"+filepath.Base(path)] = func(t *testing.T) lab {
			return lab{backend: openHost(t, kernel.Options{}), interpreter: path}
		}
	}
	labs["server"] = func(t *testing.T) lab { return lab{backend: openServer(t)} }
	labs["plain_start"] = func(t *testing.T) lab {
		return lab{backend: openHost(t, kernel.Options{}), interpreter: pythons()[0], options: []option{plainly}}
	}
	for name, open := range labs {
		t.Run(name, func(t *testing.T) {
			l := open(t)
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) { row.test(t, l) })
			}
		})
	}
}

// plainly starts interpreters without a zygote, which must make no difference.
var plainly = config(func(c *python.KernelConfig) { c.Zygote = python.ZygoteOff })

func cleanShutdown(t *testing.T, l lab) {
	for range 6 {
		s := l.start(t, slowly)
		s.ok("x = 1")
		if err := s.run.Stop(s.ctx); err != nil {
			t.Fatal(err)
		}
		outcome, err := s.run.Wait(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if outcome != (spool.Outcome{Kind: spool.Exited}) { // no signal was needed
			t.Errorf("outcome %v", outcome)
		}
	}
}

func swallowedInterrupt(t *testing.T, l lab) {
	s := l.start(t, hasty)
	var c *cell
	for c == nil || !strings.Contains(c.output(), "swallows") { // or the time was up before it began to
		c = s.await(s.begin(spool.Cell{TimeoutMs: 200, Code: `
import time
while True:
    try:
        print('swallows', flush=True)
        while True:
            time.sleep(0.01)
    except BaseException:
        pass`}))
	}
	if c.done.Outcome != spool.TurnTimeout && c.done.Outcome != spool.TurnKilled {
		t.Errorf("outcome %q", c.done.Outcome)
	}
	if c.done.StoppedWith != "terminate" && c.done.StoppedWith != "kill" || c.done.EndedBy != "timeout" {
		t.Errorf("ended by %q, stopped with %q", c.done.EndedBy, c.done.StoppedWith)
	}
	s.alive("1 + 1", "2")
}

func bytesWithoutLineEnd(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`import os; n = os.write(1, b"zzz")`).wantOutput("zzz", spool.Stdout)
	s.alive("n", "3")
}

func childStdout(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import subprocess, os
print("a", end="")
subprocess.run(["printf", "b"])
print("c")
os.system("echo d")
print("e", end="")
subprocess.run(["printf", "f"])`).wantOutput("abc\nd\nef", spool.Stdout)
	s.alive("1", "1")
}

func childStderr(t *testing.T, l lab) {
	s := l.start(t)
	c := s.ok(`
import subprocess, sys
print("one")
subprocess.run(["sh", "-c", "echo two >&2"])
print("three")
print("four", file=sys.stderr)
subprocess.run(["sh", "-c", "echo five"])  # one child's own order on two pipes cannot be known
subprocess.run(["sh", "-c", "echo six >&2"])
print("seven")`)
	c.wantOutput("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
	c.wantOutput("two\nfour\nsix\n", spool.Stderr)
}

func threadOutput(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import threading
def work(name):
    print("from", name)
started = [threading.Thread(target=work, args=(n,)) for n in ("t1", "t2")]
for s in started: s.start(); s.join()`).wantOutput("from t1\nfrom t2\n", spool.Stdout)
	// What is written between cells belongs to the run.
	turn := s.begin(spool.Cell{Code: `
go = threading.Event()
later = threading.Thread(target=lambda: (go.wait(), print("later")))
later.start()
timer = threading.Timer(0.05, lambda: print("between")); timer.start()`})
	s.await(turn).want(spool.TurnOK)
	s.see(nil, "between\n")
	s.ok("go.set(); later.join()").wantOutput("later\n")
}

func threadException(t *testing.T, l lab) {
	s := l.start(t)
	c := s.ok(`
import threading
def fail(): raise ValueError("in a thread")
x = threading.Thread(target=fail); x.start(); x.join()`)
	if got := c.output(spool.Stderr); !strings.Contains(got, "ValueError: in a thread") {
		t.Errorf("stderr %q", got)
	}
}

func heldLock(t *testing.T, l lab) {
	s := l.start(t)
	c := s.ok(`
import ctypes
c = ctypes.PyDLL(None)
text = b"x" * 300_000
left = text
while left:
    left = left[c.write(1, left, len(left)):]
for i in range(3000):
    n = c.printf(b"%s", b"y" * 100)
n = c.fflush(None)`)
	if got := c.output(spool.Stdout); strings.Count(got, "x") != 300_000 || strings.Count(got, "y") != 300_000 || len(got) != 600_000 {
		t.Errorf("%d bytes", len(got))
	}
}

func inputFails(t *testing.T, l lab) {
	s := l.start(t)
	s.exec("input('name? ')").want(spool.TurnError).wantException("EOFError", "")
	s.ok("import sys; sys.stdin.read()").wantResult("''")
	s.ok("list(sys.stdin)").wantResult("[]")
	s.ok("import os; os.read(0, 10)").wantResult("b''")
	s.alive("40 + 2", "42")

	s = l.start(t, asking)
	turn := s.begin(spool.Cell{Code: "input('name? ')"})
	s.asked(turn)
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnInterrupted)
	s.alive("40 + 2", "42")
}

func childReadsStdin(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import subprocess, sys
subprocess.run(["cat"], check=True)
subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"], check=True)`).wantOutput("''\n")
	s.ok("!cat; echo end").wantOutput("end\n")
	s.ok("%%bash\nread line; echo \"<$line>\"").wantOutput("<>\n")
}

func interruptedAwait(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("import asyncio; x = 1")
	turn := s.begin(spool.Cell{Code: "print('ready', flush=True)\nawait asyncio.sleep(60)"})
	s.see(turn, "ready")
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnInterrupted).wantException("KeyboardInterrupt", "")
	s.alive("x", "1")
	s.ok("await asyncio.sleep(0, 'again')").wantResult("'again'")
}

func strRaises(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("x = 7")
	c := s.exec(`
class Bad(Exception):
    def __str__(self): raise RuntimeError("no")
    __repr__ = __str__
raise Bad()`).want(spool.TurnError)
	if x := c.exception(); x.Name != "Bad" {
		t.Errorf("%+v", x)
	}
	s.ok("class R:\n    def __repr__(self): raise RuntimeError('no')\nR()")
	s.alive("x", "7")
}

func surrogateInException(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("x = 7")
	s.exec(`raise ValueError("a\ud800b")`).want(spool.TurnError).wantException("ValueError", "")
	s.ok(`"\udfff"`)
	s.ok(`print("p\udfffq")`)
	s.ok(`display("\udfff")`)
	s.alive("x", "7")
}

func sysExit(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("x = 7; import sys")
	s.exec("sys.exit(3)").want(spool.TurnError).wantException("SystemExit", "3")
	s.exec("exit()").want(spool.TurnError)
	s.exec("raise SystemExit").want(spool.TurnError)
	s.alive("x", "7")
}

func annotations(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    y: "str" = ""
def f(a: float) -> None: pass
`)
	s.alive("[f.type for f in dataclasses.fields(Point)][0] is int, f.__annotations__['a'] is float", "(True, True)")
	// Who asks for the other way gets it, from then on.
	s.ok("from __future__ import annotations\ndef g(a: float): pass")
	s.alive("g.__annotations__", "{'a': 'float'}")
}

func mainIsNamespace(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import pickle, sys, typing, multiprocessing, concurrent.futures
class Thing:
    def __init__(self, n): self.n = n
    other: "Thing"
def double(n): return 2 * n
`)
	s.alive("pickle.loads(pickle.dumps(Thing(5))).n", "5")
	s.alive("sys.modules['__main__'].__dict__ is globals(), __name__", "(True, '__main__')")
	s.alive("typing.get_type_hints(Thing)['other'] is Thing", "True")
	s.ok(`
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    pooled = pool.map(double, [1, 2, 3])
with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
    executed = list(executor.map(double, [1, 2, 3]))`)
	s.alive("pooled, executed", "([2, 4, 6], [2, 4, 6])")
}

func literalsStay(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("text = '''\n!ls\n%pip install x\n  %%bash\n?'''")
	s.alive("text", `'\n!ls\n%pip install x\n  %%bash\n?'`)
	s.ok("rest = (17\n% 5)").wantOutput("")
	s.alive("rest", "2")
	s.ok("differs = (1\n!= 2)")
	s.alive("differs", "True")
	s.ok("a = 1\n\f\nb = 2")
	s.alive("a + b", "3")
	s.ok("c = 'x\u2028!y\u0085%z'")
	s.alive("len(c)", "7")
	s.ok("f = f'''\n!{a}\n'''")
	s.alive("f", `'\n!1\n'`)
}

func patchedJSON(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import json, builtins, sys, os, time, io
json.dumps = json.loads = json.JSONEncoder = None
builtins.print = builtins.repr = builtins.len = None
os.write = os.read = time.sleep = None
sys.stdout = None`)
	s.alive("40 + 2", "42")
	c := s.ok("display({'a': 1})")
	if len(c.displays()) != 1 {
		t.Errorf("%s", c)
	}
	s.exec("1 / 0").want(spool.TurnError).wantException("ZeroDivisionError", "")
}

func nanDisplay(t *testing.T, l lab) {
	s := l.start(t)
	c := s.ok("display({'a': float('nan'), 'b': [float('inf'), -float('inf')], 'c': 2})")
	all := c.displays()
	if len(all) != 1 || !strings.Contains(plainText(t, all[0]), "nan") {
		t.Fatalf("%s", c)
	}
	if raw := string(all[0].Bundle["application/json"]); !strings.Contains(raw, `"c":2`) {
		t.Errorf("JSON %s", raw)
	}
	s.ok("float('nan')").wantResult("nan")
}

func sourceLines(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("def inner():\n    marker = 1\n    raise KeyError('k')  # here\ndef outer():\n    inner()")
	x := s.exec("import inspect\nouter()").want(spool.TurnError).exception()
	for _, want := range []string{"outer()", "raise KeyError('k')  # here", "in inner", "KeyError: 'k'"} {
		if !strings.Contains(x.Traceback, want) {
			t.Errorf("the traceback lacks %q:\n%s", want, x.Traceback)
		}
	}
	if strings.Contains(x.Traceback, "runner") {
		t.Errorf("the traceback has frames of the runner:\n%s", x.Traceback)
	}
	s.ok("print(inspect.getsource(inner))").wantOutput("def inner():\n    marker = 1\n    raise KeyError('k')  # here\n\n")
}

func realStdout(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import sys, faulthandler, subprocess
faulthandler.enable()
n = sys.stdout.buffer.write(b"by\xfftes\n")
sys.stdout.flush()
subprocess.run(["echo", "child"], stdout=sys.stdout)
subprocess.run(["sh", "-c", "echo err >&2"], stderr=sys.stderr)
facts = sys.stdout.encoding.lower().replace("-", ""), sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.isatty()
sys.stdout.reconfigure(errors="replace")
sys.__stdout__.write("dunder\n")
n = 0`).wantOutput("by\xfftes\nchild\nerr\ndunder\n")
	s.alive("facts", "('utf8', 1, 2, False)")
}

func answersEverything(t *testing.T, l lab) {
	s := l.start(t)
	c := s.ok("from unittest.mock import MagicMock\nm = MagicMock(); m")
	all := c.shown(python.KindResult)
	if len(all) != 1 || len(all[0].Bundle) != 1 || !strings.HasPrefix(plainText(t, all[0]), "<MagicMock") {
		t.Errorf("%s", c)
	}
	s.ok(`
class Raises:
    def __getattr__(self, name): raise RuntimeError("never")
    def __repr__(self): return "fine"
Raises()`).wantResult("fine")
	s.ok(`
class Fails:
    def _repr_html_(self): raise RuntimeError("no")
    def _repr_png_(self): return 17
    def _repr_mimebundle_(self, **kw): return 17
    def __repr__(self): return "fine"
Fails()`).wantResult("fine")
}

func bothAsync(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n + 1")
	s.alive("asyncio.run(f(1))", "2")
	s.alive("await f(2)", "3")
	s.alive("asyncio.run(f(3))", "4")
	s.alive("(await f(4)) + (await f(5))", "11")
}

func contextVariables(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("import contextvars, decimal\nv = contextvars.ContextVar('v')\ntoken = v.set(5)\ndecimal.getcontext().prec = 7")
	s.alive("v.get(), decimal.getcontext().prec", "(5, 7)")
	s.ok("import asyncio\nawait asyncio.sleep(0)\nv.set(6)")
	s.alive("v.get()", "6")
}

func closedStdout(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("x = 7\nimport os\nos.close(1)")
	s.alive("x", "7")
	s.ok("os.close(2)")
	s.ok("os.closerange(3, 64)")
	s.alive("x", "7")
	c := s.exec("1 / 0").want(spool.TurnError)
	c.wantException("ZeroDivisionError", "division by zero")
}

func semicolon(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("1 + 1;").wantResult("")
	s.ok("1 + 1;  # why").wantResult("")
	s.ok("'a;'").wantResult("'a;'")
	s.ok("6 * 7").wantResult("42")
	s.alive("_ + 1", "43")
	s.ok("None").wantResult("")
	s.alive("_", "43")
	c := s.ok("display(1, 'two', [3])")
	var texts []string
	for _, d := range c.displays() {
		texts = append(texts, plainText(t, d))
	}
	if got := fmt.Sprint(texts); got != "[1 'two' [3]]" && got != "[1 two [3]]" {
		t.Errorf("displays %s", got)
	}
}

func topLevelAwait(t *testing.T, l lab) {
	s := l.start(t)
	s.ok(`
import asyncio, contextlib
@contextlib.asynccontextmanager
async def manager():
    yield "managed"
async def numbers():
    for i in range(3): yield i
async with manager() as got:
    print(got)
async for n in numbers():
    print(n)
task = asyncio.ensure_future(asyncio.sleep(0, "kept"))
values = [n async for n in numbers()]`).wantOutput("managed\n0\n1\n2\n")
	s.alive("values, await task", "([0, 1, 2], 'kept')")
}

func interruptAtEnd(t *testing.T, l lab) {
	s := l.start(t)
	s.ok("x = 7; n = 0")
	for i := range 150 {
		turn := s.begin(spool.Cell{Code: "n += 1"})
		if err := turn.Interrupt(s.ctx, 0); err != nil {
			t.Fatal(err)
		}
		c := s.await(turn)
		if c.done.Outcome != spool.TurnOK && c.done.Outcome != spool.TurnInterrupted {
			t.Fatalf("cell %d: %s", i, c)
		}
	}
	s.alive("x", "7")
	for _, code := range s.notices() {
		if code == kernel.NoticeRestarted || code == kernel.NoticeCrashed {
			t.Errorf("notice %s", code)
		}
	}
}
