package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

func TestForkBranchesTheState(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg, spool.Spec{ID: "parent"})
		r.ok("import random, os\nx = [1, 2]\ndef f(): return 'of a cell'\nprint('once')")
		cfg.Fork = "parent"
		child := start(t, e, cfg, spool.Spec{ID: "child"})
		if child.Pid() == r.Pid() {
			t.Errorf("both are process %d", r.Pid())
		}
		child.want("x.append(3); x", "[1, 2, 3]")
		r.want("x", "[1, 2]")
		child.want("import inspect; inspect.getsource(f)", `"def f(): return 'of a cell'\n"`)
		if a, b := r.ok("random.random()").result, child.ok("random.random()").result; a == b {
			t.Errorf("both draw %s", a)
		}
		if a, b := r.ok("os.getsid(0) == os.getpid()").result, child.ok("os.getsid(0) == os.getpid()").result; a != "True" || b != "True" {
			t.Errorf("sessions: %s, %s", a, b)
		}
		if res := child.ok("print('out'); import sys; print('err', file=sys.stderr); display(1)"); res.out != "out\n" || res.err != "err\n" || len(res.displays) != 1 {
			t.Errorf("%+v", res)
		}
		// A copy of the copy outlives both.
		cfg.Fork = "child"
		third := start(t, e, cfg, spool.Spec{ID: "third"})
		r.end()
		child.end()
		third.want("x", "[1, 2, 3]")
		turn := third.cell("print('go', flush=True)\nwhile True: pass")
		third.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
		third.control(spool.Control{Op: spool.ControlInterrupt})
		if res := third.turnEvents(turn); res.Outcome != spool.TurnInterrupted {
			t.Errorf("%+v", res.Done)
		}
	})
}

func TestForkIsRefusedWithTheReason(t *testing.T) {
	e := open(t)
	r := start(t, e, python.KernelConfig{Zygote: python.ZygoteOff}, spool.Spec{ID: "parent"})
	refused := func(why string) {
		t.Helper()
		_, err := tryStart(t, e, python.KernelConfig{Fork: "parent"})
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("fork: %v, want %q", err, why)
		}
	}
	r.ok("import threading\nstop = threading.Event()\nt = threading.Thread(target=stop.wait)\nt.start()")
	refused("threads")
	r.ok("stop.set(); t.join()\nimport socket\na, b = socket.socketpair()")
	refused("socket")
	r.ok("a.close(); b.close()\nf = open('/tmp/spool-fork-test-%d' % __import__('os').getpid(), 'w')")
	refused("open for writing")
	r.ok("f.close(); __import__('os').remove(f.name)\nimport subprocess\np = subprocess.Popen(['sleep', '1000'])")
	refused("child processes")
	r.ok("p.kill(); p.wait()\nimport asyncio\nloop_task = None\nasync def forever():\n    while True: await asyncio.sleep(0.01)\nloop_task = asyncio.ensure_future(forever()) if False else None\nawait asyncio.sleep(0)\nloop_task = asyncio.create_task(forever())")
	refused("asyncio")
	r.ok("loop_task.cancel()\ntry:\n    await loop_task\nexcept asyncio.CancelledError: pass")
	turn := r.cell("print('go', flush=True)\nwhile True: pass")
	r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
	refused("a cell is running")
	r.control(spool.Control{Op: spool.ControlInterrupt})
	r.done(turn)
	if _, err := tryStart(t, e, python.KernelConfig{Fork: "nobody"}); err == nil {
		t.Error("a run that does not exist was forked")
	}
	start(t, e, python.KernelConfig{Fork: "parent"}).want("1 + 1", "2")
	r.want("'alive'", "'alive'")
}

func TestForkOfALargeState(t *testing.T) {
	e := open(t)
	r := start(t, e, python.KernelConfig{Zygote: python.ZygoteOff}, spool.Spec{ID: "parent"})
	r.ok("big = [bytes(1000) for _ in range(500_000)]")
	begin := time.Now()
	child := start(t, e, python.KernelConfig{Fork: "parent"})
	t.Logf("forked in %v", time.Since(begin))
	child.want("len(big), sum(len(b) for b in big)", "(500000, 500000000)")
	child.ok("del big")
	r.want("len(big)", "500000")
}

// A process of user code that comes back from fork is not another kernel.
func TestForkInACellIsNoSecondKernel(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		res := r.ok("import os\npid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')")
		if res.out != "child\nparent\n" {
			t.Errorf("output is %q", res.out)
		}
		res = r.ok("pid = os.fork()\nif pid == 0: 1/0\nos.waitpid(pid, 0)[1] >> 8")
		if res.result != "1" || !strings.Contains(res.err, "ZeroDivisionError") {
			t.Errorf("%+v", res)
		}
		r.want("import multiprocessing as mp\ndef sq(x): return x * x\nwith mp.get_context('fork').Pool(2) as p: v = p.map(sq, [1, 2, 3])\nv", "[1, 4, 9]")
	})
}

func TestForkKeepsNoFilesOpen(t *testing.T) {
	e := open(t)
	cfg := python.KernelConfig{Zygote: python.ZygoteWait}
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	cycle := func() {
		r := start(t, e, cfg, spool.Spec{ID: "parent"})
		r.ok("x = 1")
		c := start(t, e, python.KernelConfig{Fork: "parent"})
		c.want("x", "1")
		c.end()
		r.end()
	}
	cycle()
	before := count()
	for range 4 {
		cycle()
	}
	// A spare may come and go.
	polltest.Until(t, fmt.Sprintf("at most 4 descriptors more than %d", before), func() bool { return count() <= before+4 })
}

// A copy that does not become one is ended in time, and so is a run that does
// not come back from forking.
func TestForkThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	e := open(t)
	steps := python.KernelConfig{Zygote: python.ZygoteOff, AgainMs: 50, TerminateMs: 50, KillMs: 50}
	fork := func(id spool.RunID, why string) {
		t.Helper()
		r, err := tryStart(t, e, python.KernelConfig{Fork: id, StartTimeoutMs: 2000})
		if err == nil {
			t.Fatalf("there is a copy, process %d", r.Pid())
		}
		if !strings.Contains(err.Error(), why) {
			t.Errorf("fork: %v, want %q", err, why)
		}
	}
	hang := func(when, code string) string {
		return "import os, time, functools\nkept = hang = True\nos.register_at_fork(" + when + "=" + code + ")"
	}

	mark := fmt.Sprintf("FORK_TEST=%d-%d", os.Getpid(), time.Now().UnixNano())
	name, value, _ := strings.Cut(mark, "=")
	r := start(t, e, steps, spool.Spec{ID: "after", Env: map[string]string{name: value}})
	r.ok(hang("after_in_child", "lambda: hang and time.sleep(1e6)"))
	fork("after", "the copy was killed: the interpreter did not become ready in time")
	// There is no event when the copy, which was killed, is gone.
	polltest.Until(t, fmt.Sprintf("process %d alone", r.Pid()), func() bool {
		return slices.Equal(marked(t, mark), []string{strconv.Itoa(r.Pid())})
	})
	r.want("kept", "True")
	r.ok("hang = False")
	copied := start(t, e, python.KernelConfig{Fork: "after"})
	copied.want("kept", "True")

	// What hangs in the run itself is interrupted, and the state is kept.
	r = start(t, e, python.KernelConfig{Zygote: python.ZygoteOff, KillMs: enginetest.Patience.Milliseconds()}, spool.Spec{ID: "before"})
	r.ok(hang("before", "lambda: hang and time.sleep(1e6)"))
	pid := r.Pid()
	fork("before", "the interpreter did not fork in time")
	r.want("kept", "True")
	if r.Pid() != pid {
		t.Errorf("process %d, not %d", r.Pid(), pid)
	}
	r.ok("hang = False")
	start(t, e, python.KernelConfig{Fork: "before"}).want("kept", "True")

	// What cannot be interrupted ends with the interpreter, and that is told.
	r = start(t, e, steps, spool.Spec{ID: "never"})
	r.ok("import ctypes\nc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)\nc.pthread_mutex_lock(mutex)\n" +
		hang("before", "functools.partial(c.pthread_mutex_lock, mutex)"))
	fork("never", "the interpreter did not fork in time")
	r.log.Until(t, "its end", func(e spool.Event) bool {
		return e.Kind == spool.KindNotice && enginetest.Data[spool.Notice](t, e).Code == NoticeCrashed
	})
	r.want("'kept' in globals()", "False")
	notices := r.log.Notices(t)
	for _, code := range []string{NoticeEscalated, NoticeCrashed, NoticeRestarted} {
		if !slices.Contains(notices, code) {
			t.Errorf("notices %v without %s", notices, code)
		}
	}
}

// marked returns the processes that have something in their environment.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), mark) { // one that ended has none
			list = append(list, filepath.Base(filepath.Dir(f)))
		}
	}
	return list
}
