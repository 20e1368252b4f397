//go:build linux

package kernel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// one is a kernel of its own host, for tests that need nothing special.
func one(t *testing.T, options ...option) *session {
	t.Helper()
	return sharedLab(t).start(t, options...)
}

// Process and transport.

func TestKernelHasASessionOfItsOwn(t *testing.T) {
	s := one(t)
	s.alive("import os; os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()", "(True, True)")
}

func TestKernelStartsInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "neighbour.py"), []byte("value = 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = dir }))
	s.alive("import os, neighbour; os.getcwd(), neighbour.value", fmt.Sprintf("('%s', 5)", dir))
}

func TestKernelSpeaksUTF8WhateverTheLocale(t *testing.T) {
	s := one(t, spec(func(s *spool.Spec) { s.Env = map[string]string{"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"} }))
	s.ok("print('ä€😀')").wantOutput("ä€😀\n")
}

func TestKernelLeavesNothingInTemp(t *testing.T) {
	dir := t.TempDir()
	s := one(t, spec(func(s *spool.Spec) { s.Env = map[string]string{"TMPDIR": dir} }))
	s.ok("1 + 1").wantResult("2")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestKernelHasNoPortAndNoToken(t *testing.T) {
	s := one(t, config(func(c *python.KernelConfig) { c.Tools = []string{"echo"} }))
	s.ok(`
import os
kinds = set()
for fd in os.listdir("/proc/self/fd"):
    try: kinds.add(os.readlink("/proc/self/fd/" + fd).split(":")[0])
    except OSError: pass
inodes = {l.split()[9] for f in ("tcp", "tcp6") for l in open("/proc/net/" + f).readlines()[1:]}
mine = {os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)}
listens = [m for m in mine if m.startswith("socket:[") and m[8:-1] in inodes]
secrets = [k for k in os.environ if "TOKEN" in k or "SPOOL" in k]`)
	s.alive("listens, secrets", "([], [])")
	// Beside files it has its pipes and the one socket to the host.
	s.alive("sorted(k for k in kinds if k[0] != '/'), sum(m.startswith('socket:') for m in mine)", "(['pipe', 'socket'], 1)")
}

// Cells.

func TestCellResultIsItsLastExpression(t *testing.T) {
	s := one(t)
	s.ok("a = 2\na + 3").wantResult("5")
	s.ok("a = 2").wantResult("")
	s.ok("for i in range(2):\n    i").wantResult("")
	s.ok("").wantResult("")
	s.ok("# nothing").wantResult("")
	s.ok("def f():\n    return 1\nf()").wantResult("1")
}

func TestCellsAreCountedAsAPersonCounts(t *testing.T) {
	s := one(t)
	if c := s.ok("1"); c.done.ExecutionCount != 1 || c.shown(python.KindResult)[0].Count != 1 {
		t.Errorf("%s", c)
	}
	silent := s.await(s.begin(spool.Cell{Code: "x = 1; x", Silent: true})).want(spool.TurnOK)
	if silent.done.ExecutionCount != 0 || silent.result() != "" {
		t.Errorf("%s", silent)
	}
	hidden := s.await(s.begin(spool.Cell{Code: "x + 1", NoHistory: true})).want(spool.TurnOK)
	if hidden.result() != "2" {
		t.Errorf("%s", hidden)
	}
	if c := s.exec("1 / 0"); c.done.ExecutionCount != 2 {
		t.Errorf("%s", c)
	}
	if c := s.ok("x"); c.done.ExecutionCount != 3 {
		t.Errorf("%s", c)
	}
	s.alive("_", "1") // of counted cells only
}

func TestCellRequestIsReadLeniently(t *testing.T) {
	s := one(t)
	r, err := s.run.Send(s.ctx, spool.Input{ID: "c1", Kind: spool.InputCell, Data: json.RawMessage(`{"code":"6*7","colour":"red","silent":false}`)})
	if err != nil {
		t.Fatal(err)
	}
	c := s.await(s.run.Turn(r.Seq)).want(spool.TurnOK)
	c.wantResult("42")
	if c.done.ID != "c1" {
		t.Errorf("id %q", c.done.ID)
	}
	// One that is none does no harm.
	if r, err := s.run.Send(s.ctx, spool.Input{Kind: spool.InputCell, Data: json.RawMessage(`{"code":17}`)}); err == nil {
		s.await(s.run.Turn(r.Seq)).want(spool.TurnError)
	}
	s.alive("1", "1")
	again, err := s.run.Send(s.ctx, spool.Input{ID: "c1", Kind: spool.InputCell, Data: json.RawMessage(`{"code":"6*7"}`)})
	if err != nil || !again.Repeated {
		t.Errorf("a repeated id: %+v, %v", again, err)
	}
}

func TestSyntaxErrorShowsTheCaretAndRunsNothing(t *testing.T) {
	s := one(t)
	x := s.exec("print('first')\nx = = 2").want(spool.TurnError).wantException("SyntaxError", "")
	if !strings.Contains(x.Traceback, "x = = 2") || !strings.Contains(x.Traceback, "^") || strings.Contains(x.Traceback, "runner") {
		t.Errorf("traceback:\n%s", x.Traceback)
	}
	if out := s.exec("print('first')\nx = = 2").output(); out != "" {
		t.Errorf("it ran: %q", out)
	}
	s.exec("if True:\nx").want(spool.TurnError).wantException("IndentationError", "")
	s.exec("a\x00b").want(spool.TurnError)
	s.alive("1", "1")
}

// A cell of one line that may be an expression is compiled in another way.
func TestCellsOfOneLine(t *testing.T) {
	s := one(t)
	s.ok("import asyncio; importance = 5")
	for _, tt := range []struct {
		code, result       string
		exception, message string // "*" is any exception
		nowhere            bool   // Python does not show where it was raised
	}{
		{code: "1 + 1  # a comment", result: "2"},
		{code: "1 + 1\t", result: "2"},
		{code: "importance", result: "5"},
		{code: "not importance", result: "False"},
		{code: "importance if True else 2", result: "5"},
		{code: "(importance, {'a': [1]}, b'x', 1j, None, ...)", result: "(5, {'a': [1]}, b'x', 1j, None, Ellipsis)"},
		{code: "{'a': 1}", result: "{'a': 1}"},
		{code: "lambda: 1", result: "<function <lambda> at"},
		{code: "await asyncio.sleep(0, 7)", result: "7"},
		{code: "[await asyncio.sleep(0, i) for i in range(2)]", result: "[0, 1]"},
		{code: "importance == 5", result: "True"},
		{code: "dict(a=1)", result: "{'a': 1}"},
		{code: "importance;"},
		{code: "None"},
		{code: "print(end='')"},
		{code: "pass"},
		{code: "del importance"},
		{code: "importance", exception: "NameError", message: "importance"},
		{code: " 1", exception: "IndentationError", message: "unexpected indent"},
		{code: "1 +", exception: "SyntaxError", message: "invalid syntax"},
		{code: "(yield)", exception: "SyntaxError", message: "outside function", nowhere: true},
		{code: "1 2", exception: "SyntaxError"},
		{code: "'\x00'", exception: "*"},
		{code: strings.Repeat("(", 10_000), exception: "*"},
	} {
		c := s.exec(tt.code)
		switch {
		case tt.exception == "*":
			c.want(spool.TurnError)
		case tt.exception != "":
			x := c.want(spool.TurnError).wantException(tt.exception, tt.message)
			if !tt.nowhere && !strings.Contains(x.Traceback, tt.code) {
				t.Errorf("%q: the traceback does not show it:\n%s", tt.code, x.Traceback)
			}
		case !strings.HasPrefix(c.want(spool.TurnOK).result(), tt.result) || tt.result == "" && c.result() != "":
			t.Errorf("%q: result %q, expected %q", tt.code, c.result(), tt.result)
		}
	}
	s.ok("class Odd(type):\n    __hash__ = None\nclass Value(metaclass=Odd):\n    def __repr__(self): return 'odd'\n    def _repr_html_(self): return '<b>odd</b>'")
	if all := s.ok("Value()").shown(python.KindResult); len(all) != 1 || plainText(t, all[0]) != "odd" || string(all[0].Bundle["text/html"]) != `"\u003cb\u003eodd\u003c/b\u003e"` {
		t.Errorf("a value whose type has a type of its own: %v", all)
	}
	if c := s.ok("1 is 1"); strings.Count(c.output(spool.Stderr), "SyntaxWarning") != 1 {
		t.Errorf("a literal that is compared has not one warning: %s", c)
	}
}

func TestTracebackOfAnInterrupt(t *testing.T) {
	s := one(t)
	// It is on one line, wherever in it the interrupt comes.
	s.ok("import time\ndef wait():\n    while not time.sleep(0.01): print('ready', flush=True)")
	for _, tt := range []struct{ code, traceback string }{
		{"wait()", `Traceback (most recent call last):
  File "<cell 2>", line 1, in <module>
    wait()
  File "<cell 1>", line 3, in wait
    while not time.sleep(0.01): print('ready', flush=True)
KeyboardInterrupt
`},
		{"try: 1/0\nexcept ZeroDivisionError: wait()", "During handling of the above exception"},
		{"class Empty(Exception):\n    def __len__(self): return 0\ntry: raise Empty\nexcept Empty: wait()", "During handling of the above exception"},
		{"def deep(n):\n    return wait() if n == 0 else deep(n - 1)\ndeep(100)", "[Previous line repeated 9"},
	} {
		turn := s.begin(spool.Cell{Code: tt.code})
		s.see(turn, "ready")
		if err := turn.Interrupt(s.ctx, 0); err != nil {
			t.Fatal(err)
		}
		x := s.await(turn).want(spool.TurnInterrupted).wantException("KeyboardInterrupt", "interrupted")
		if !strings.Contains(x.Traceback, tt.traceback) || !strings.HasSuffix(x.Traceback, "KeyboardInterrupt\n") || strings.Contains(x.Traceback, "runner") {
			t.Errorf("%q: traceback\n%s\nexpected\n%s", tt.code, x.Traceback, tt.traceback)
		}
	}
}

func TestTracebackShowsCauses(t *testing.T) {
	s := one(t)
	x := s.exec(`
try:
    {}["missing"]
except KeyError as e:
    raise ValueError("outer") from e`).want(spool.TurnError).wantException("ValueError", "outer")
	for _, want := range []string{"KeyError: 'missing'", "direct cause", "ValueError: outer", `{}["missing"]`} {
		if !strings.Contains(x.Traceback, want) {
			t.Errorf("the traceback lacks %q:\n%s", want, x.Traceback)
		}
	}
	if strings.Contains(x.Traceback, "\x1b") {
		t.Error("the traceback is coloured")
	}
}

func TestRecursionErrorIsShort(t *testing.T) {
	s := one(t)
	x := s.exec("def f(): f()\nf()").want(spool.TurnError).wantException("RecursionError", "")
	if len(x.Traceback) > 20_000 {
		t.Errorf("%d bytes of traceback", len(x.Traceback))
	}
	s.alive("1", "1")
}

func TestMissingModuleSaysHowToGetIt(t *testing.T) {
	x := one(t).exec("import no_such_module_here").want(spool.TurnError).wantException("ModuleNotFoundError", "no_such_module_here")
	if !strings.Contains(x.Traceback, "%pip install no_such_module_here") {
		t.Errorf("traceback:\n%s", x.Traceback)
	}
}

// Magics.

func TestMagics(t *testing.T) {
	dir := t.TempDir()
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = dir }))
	s.ok("%%writefile made.py\nvalue = 11\nprint('ran')")
	b, err := os.ReadFile(filepath.Join(dir, "made.py"))
	if err != nil || strings.TrimRight(string(b), "\n") != "value = 11\nprint('ran')" {
		t.Errorf("%q, %v", b, err)
	}
	if c := s.ok("%run made.py"); !strings.Contains(c.output(), "ran\n") {
		t.Errorf("%s", c)
	}
	s.alive("value", "11")
	s.ok("!echo shell $((1+1))").wantOutput("shell 2\n")
	s.ok("lines = !printf 'a\\nb\\n'")
	s.alive("list(lines)", "['a', 'b']")
	s.ok("name = 'x'\n!echo {name}").wantOutput("x\n")
	s.ok("%%bash\necho one\necho two >&2").wantOutput("one\ntwo\n")
	if c := s.ok("%time sum(range(10))"); !strings.Contains(strings.ToLower(c.output()), "wall") || c.result() != "45" {
		t.Errorf("%s", c)
	}
	if c := s.ok("%timeit -n 3 -r 2 pass"); !strings.Contains(c.output(), "loop") {
		t.Errorf("%s", c)
	}
	s.ok("%%capture caught\nprint('hidden')").wantOutput("")
	s.alive("str(caught.stdout) if hasattr(caught, 'stdout') else str(caught)", `'hidden\n'`)
	s.ok("%env SPOOL_TEST_VALUE=5\nimport os")
	s.alive("os.environ['SPOOL_TEST_VALUE']", "'5'")
	s.ok("%cd /")
	s.alive("os.getcwd()", "'/'")
	if c := s.ok("%pip --version"); !strings.Contains(c.output(), "pip ") {
		t.Errorf("%s", c)
	}
	s.ok("if True:\n    !echo indented").wantOutput("indented\n")
	s.ok("5 % 3").wantResult("2")
}

func TestUnknownMagicIsAClearError(t *testing.T) {
	s := one(t)
	for _, code := range []string{"%nosuch thing", "%%nosuch\nbody"} {
		x := s.exec(code).want(spool.TurnError).exception()
		if !strings.Contains(x.Message, "nosuch") || !strings.Contains(x.Traceback, "nosuch") {
			t.Errorf("%+v", x)
		}
	}
	s.exec("%cd /no/such/directory").want(spool.TurnError)
	s.exec("%run no_such_file.py").want(spool.TurnError)
	s.alive("1", "1")
}

// Streams.

func TestOutputIsSeenBeforeItsLineEnds(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	if err := mkfifo(gate); err != nil {
		t.Fatal(err)
	}
	s := one(t)
	turn := s.begin(spool.Cell{Code: fmt.Sprintf("print('begun', end='')\nopen(%q).read()", gate)})
	s.see(turn, "begun")
	if err := os.WriteFile(gate, []byte("go"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnOK)
}

func TestStreamsAreToldApartAndInOrder(t *testing.T) {
	s := one(t)
	var code, want strings.Builder
	for i := range 40 {
		stream := []string{"stdout", "stderr"}[i%2]
		fmt.Fprintf(&code, "print(%d, file=sys.%s)\n", i, stream)
		fmt.Fprintf(&want, "%d\n", i)
	}
	s.ok("import sys\n" + code.String()).wantOutput(want.String())
}

func TestPrintedOutputPrecedesDisplayResultAndDone(t *testing.T) {
	c := one(t).ok("print('a')\ndisplay('b')\nprint('c')\n'd'")
	var kinds []string
	for _, e := range c.events {
		kinds = append(kinds, string(e.Kind))
	}
	if got := strings.Join(kinds, " "); got != "output display output result done" {
		t.Errorf("%s", c)
	}
}

func TestOutputOfABackgroundChildDoesNotHoldTheCell(t *testing.T) {
	s := one(t)
	s.ok("import subprocess\np = subprocess.Popen(['sh', '-c', 'read x; echo late'], stdin=subprocess.PIPE)")
	s.ok("n = p.stdin.write(b'x\\n'); p.stdin.close(); p.wait()").wantOutput("late\n")
}
