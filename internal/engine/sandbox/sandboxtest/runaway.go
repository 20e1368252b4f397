package sandboxtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// runaways are scripts that do not end by themselves. Each is stopped after its
// limit, and the run goes on.
var runaways = []test{
	{"while_true", runaway("while True: pass", 0)},
	{"except_base_exception", runaway("while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass", 0)},
	{"catastrophic_regex", runaway("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", 0)},
	{"huge_power", runaway("x = 10**10**9", 0)},
	{"long_sum", runaway("sum(range(10**12))", 0)},
	{"sleep", runaway("import time\nwhile True: time.sleep(1000)", 0)},
	{"memory_bomb", runaway("x = []\nwhile True: x.append('x' * 1000000 + str(len(x)))", mayEnd)},
	{"memory_doubling", runaway("x = 'x'\nwhile True:\n    try:\n        x = x + x\n    except MemoryError:\n        x = 'x'", mayEnd)},
	{"output_flood", runaway("while True: print('x' * 1000)", 0)},
	{"million_files", runaway("import os\nfor i in range(10**6):\n    open('/tmp/f%d' % i, 'w').write('x')", mayEnd)},
	{"deep_directories", runaway("import os\nwhile True:\n    os.mkdir('d'); os.chdir('d')", mayEnd)},
	{"deep_recursion", runaway("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", mayEnd)},
	{"deep_recursion_in_c", runaway("x = []\nfor _ in range(10**6): x = [x]\nrepr(x)", mayEnd)},
	{"threads", runaway("import threading\nwhile True:\n    t = threading.Thread(target=lambda: None); t.start()", mayEnd)},
}

// mayEnd allows a script to come to its end, by an exception or a limit other
// than time.
const mayEnd = 1

// limit is the time that runaways have, and late how much later than that they
// may end on a machine that does other things, too.
const (
	limit = 200 * time.Millisecond
	late  = time.Minute
)

func runaway(code string, flags int) func(t *testing.T, s Subject) {
	return func(t *testing.T, s Subject) {
		b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
			c.Limits.MemoryBytes = 128 << 20
		})
		b.alive()
		for range 2 {
			e := b.wait(b.exec(spool.Cell{Code: code, TimeoutMs: limit.Milliseconds()}))
			switch {
			case e.done.EndedBy == "timeout":
			case flags&mayEnd != 0 && *e.done.ExitCode != 0:
			default:
				t.Fatalf("done %s, stderr %.2000q", text(e.done), e.stderr)
			}
			if e.took > limit+late {
				t.Errorf("with a limit of %v it ended after %v", limit, e.took)
			}
			b.alive()
		}
	}
}

// isolation are tests of many contexts at once.
var isolation = []test{
	{"contexts_do_not_see_each_other", contextsDoNotSeeEachOther},
	{"a_crash_hurts_one_run", crashHurtsOne},
}

func contextsDoNotSeeEachOther(t *testing.T, s Subject) {
	l := newLab(t, s)
	n := s.Contexts
	if n == 0 {
		n = 100
	}
	boxes := make([]*box, n)
	for i := range boxes {
		boxes[i] = l.start(func(spec *spool.Spec, _ *python.SandboxConfig) {
			spec.Stdin = true
			spec.Env = map[string]string{"ME": fmt.Sprint(i)}
		})
	}
	turns := make([]*spool.Turn, n)
	var all sync.WaitGroup
	for i, b := range boxes {
		turn, err := b.run.Exec(l.ctx, "", spool.Cell{Code: `
import os, sys
mine = os.environ["ME"]
seen = set(os.listdir("/tmp")) | set(os.listdir("."))
open("/tmp/" + mine, "w").write(mine); open(mine + ".txt", "w").write(mine)
state = globals().get("state", []) + [mine]
line = sys.stdin.readline().strip()
print(mine, line, sorted(os.listdir("/tmp")), sorted(os.listdir(".")), state, seen, dict(os.environ))
`})
		if err != nil {
			t.Fatal(err)
		}
		turns[i] = turn
	}
	// All are open and wait for their input at the same time.
	for i, b := range boxes {
		all.Go(func() {
			for _, in := range []spool.Input{{Kind: spool.InputStdin, Bytes: fmt.Appendf(nil, "for %d\n", i)}, {Kind: spool.InputEOF}} {
				if _, err := b.run.Send(l.ctx, in); err != nil {
					t.Errorf("context %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	for i, b := range boxes {
		e := b.wait(turns[i])
		want := fmt.Sprintf("%d for %d ['%d'] ['%d.txt'] ['%d'] set() {'ME': '%d'}\n", i, i, i, i, i, i)
		if e.stdout != want {
			t.Errorf("context %d printed %q, want %q; stderr %q; done %s", i, e.stdout, want, e.stderr, text(e.done))
		}
	}
}

func crashHurtsOne(t *testing.T, s Subject) {
	l := newLab(t, s)
	one, other := l.start(nil), l.start(nil)
	other.prints("x = 'kept'", "")
	e := one.do(`
import opcode, types
op = opcode.opmap
far = [op["EXTENDED_ARG"], 0x10, op["EXTENDED_ARG"], 0, op["EXTENDED_ARG"], 0, op["LOAD_CONST"], 0, op["RETURN_VALUE"], 0]
code = (lambda: 0).__code__
types.FunctionType(code.replace(co_code=bytes([op["RESUME"], 0] + far)), {})() # a constant that is outside of the memory
`)
	if e.done.Outcome != spool.TurnCrashed || e.done.EndedBy != "crash" || *e.done.ExitCode == 0 || e.done.Error == "" {
		t.Errorf("a script that breaks its interpreter ends with %s, stdout %q, stderr %q", text(e.done), e.stdout, e.stderr)
	}
	one.alive()
	other.prints("print(x)", "kept\n")
}
