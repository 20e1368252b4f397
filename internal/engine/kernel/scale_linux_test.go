package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/python"
)

// orphanVariable makes this test binary the host that is killed.
const orphanVariable = "SPOOL_TEST_KERNEL_HOST"

// A host that is killed leaves no Python behind: not an idle kernel, not one
// in a loop, not one in C code that holds the lock of the interpreter, not a
// child of one, wherever it went, and no zygote.
func TestKilledHostLeavesNoPython(t *testing.T) {
	if os.Getenv(orphanVariable) != "" {
		beOrphanMaker(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledHostLeavesNoPython$")
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	var owner string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "owner "); ok {
			owner = name
			break
		}
		if pid, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "pid ")); err == nil {
			pids = append(pids, pid)
		}
	}
	if owner == "" || len(pids) < 8 {
		t.Fatalf("the host told of %v and %q", pids, owner)
	}
	var fds []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for i, fd := range fds {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := 0, unix.EINTR
		for err == unix.EINTR {
			n, err = pollFor(poll, time.Until(begin.Add(enginetest.Patience)))
		}
		if n != 1 {
			t.Errorf("process %d (number %d) is alive: %v", pids[i], i, err)
		}
	}
	t.Logf("gone after %v", time.Since(begin))
	_ = cmd.Wait() // it was killed
	if _, err := launch.SweepOwner(owner); err != nil {
		t.Error(err)
	}
}

func pollFor(fds []unix.PollFd, d time.Duration) (int, unix.Errno) {
	n, err := unix.Poll(fds, max(0, int(d/time.Millisecond)))
	errno, _ := err.(unix.Errno) // nothing else comes
	return n, errno
}

func beOrphanMaker(t *testing.T) {
	e := open(t)
	wait := start(t, e, python.KernelConfig{Zygote: python.ZygoteWait})
	plain := start(t, e, python.KernelConfig{Zygote: python.ZygoteOff})
	loop := start(t, e, python.KernelConfig{Zygote: python.ZygoteWait})
	loop.cell("while True: pass")
	inC := start(t, e, python.KernelConfig{Zygote: python.ZygoteOff})
	inC.cell("import ctypes; ctypes.PyDLL(None).sleep(1000)")
	res := plain.ok("import os\npid = os.fork()\nif pid == 0:\n    while True: pass\npid")
	for _, r := range []*testRun{wait, plain, loop, inC} {
		fmt.Println("pid", r.Pid())
	}
	fmt.Println("pid", res.result)
	for _, r := range []*testRun{wait, plain} { // these leave the process group
		fmt.Println("pid", r.ok("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True).pid").result)
	}
	e.mu.Lock()
	for _, z := range e.zygotes {
		fmt.Println("pid", z.tree.Pid())
	}
	e.mu.Unlock()
	fmt.Println("owner", e.Owner())
	select {} // until killed
}

// pss is the proportional memory of a process in bytes.
func pss(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			n, err := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("no Pss of %d", pid)
	return 0
}

func TestHundredKernelsAtOnce(t *testing.T) {
	e := open(t)
	cfg := python.KernelConfig{Zygote: python.ZygoteWait, Interpreter: testPython(t)}
	start(t, e, cfg)
	runs := make([]*testRun, 100)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			r, err := tryStart(t, e, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			r.cell(fmt.Sprintf("x = %d", i))
			runs[i] = r
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	var sum int64
	for i, r := range runs {
		r.want("x", strconv.Itoa(i))
		sum += pss(t, r.Pid())
	}
	t.Logf("%.1f MB each", float64(sum)/100/(1<<20))
	if sum > 900<<20 {
		t.Errorf("100 kernels have %d MB", sum>>20)
	}
	for _, r := range runs {
		wg.Go(r.end)
	}
	wg.Wait()
}

// A kernel of a zygote shares what was imported with the others.
func TestPreloadedKernelsAreSmall(t *testing.T) {
	e := open(t)
	cfg := python.KernelConfig{Zygote: python.ZygoteWait, Interpreter: pytest.Python(t), Preload: []string{"numpy", "pandas"}}
	const kernels = 10
	var sum int64
	runs := make([]*testRun, kernels)
	for i := range runs {
		runs[i] = start(t, e, cfg)
		runs[i].want("import numpy as np, pandas as pd; int(np.arange(5).sum())", "10")
	}
	for _, r := range runs {
		sum += pss(t, r.Pid())
	}
	t.Logf("%.1f MB each", float64(sum)/kernels/(1<<20))
	if sum > kernels*16<<20 { // without sharing, each has several times as much
		t.Errorf("%d kernels with numpy and pandas have %d MB", kernels, sum>>20)
	}
}

// What a cell leaves in the event loop goes on between cells, and so does its
// output.
func TestTasksGoOnBetweenCells(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		r.ok("import asyncio\nasync def later():\n    await asyncio.sleep(0.05)\n    print('from the task', end='')\n    await asyncio.sleep(1000)\ntask = asyncio.create_task(later())\nawait asyncio.sleep(0)")
		r.log.UntilOutput(t, spool.Stdout, "from the task")
		r.want("asyncio.run(asyncio.sleep(0, 'both'))", "'both'")
		r.want("task.cancel()", "True")
		r.want("await asyncio.sleep(0.01); task.cancelled()", "True")
	})
}

// Kernels and cells come and go, and nothing stays.
func TestSoak(t *testing.T) {
	e := open(t)
	cfg := python.KernelConfig{Zygote: python.ZygoteWait, Interpreter: testPython(t)}
	start(t, e, cfg).end()
	fds := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := fds()
	for range 60 {
		r := start(t, e, cfg)
		for i := range 10 {
			r.want(fmt.Sprint(i, "+1"), strconv.Itoa(i+1))
		}
		r.control(spool.Control{Op: spool.ControlStop, Grace: enginetest.Patience})
		if o := r.Wait(); o != (spool.Outcome{Kind: spool.Exited}) {
			t.Fatalf("outcome is %v", o)
		}
	}
	// A spare and what a cache keeps, once no spare is being made.
	polltest.Until(t, fmt.Sprintf("at most 8 descriptors more than %d", before), func() bool { return fds() <= before+8 })
}

func TestLargeOutputIsComplete(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{Zygote: python.ZygoteOff})
	turn := r.cell("import sys\ns = 'x' * 1000\nfor i in range(20_000): print(i, s)\nsys.stdout.write('y' * 5_000_000)\nprint('\\ud800 \\0 ü')")
	r.done(turn)
	out := r.log.Output(t, spool.Stdout)
	want := 0
	for i := range 20_000 {
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", 1000))
		if !bytes.HasPrefix(out[want:], []byte(line)) {
			t.Fatalf("line %d is wrong", i)
		}
		want += len(line)
	}
	if end := out[want:]; len(end) < 5_000_000 || string(end[5_000_000:]) != "\\ud800 \x00 ü\n" {
		t.Errorf("the end is %d bytes, %.100q", len(end), end[max(0, len(end)-100):])
	}
}

// Without control groups interpreters are started plainly, and work.
func TestWithoutControlGroups(t *testing.T) {
	e, err := New(Options{Tree: launch.TreeWalk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r := start(t, e, python.KernelConfig{Zygote: python.ZygoteWait})
	r.want("1 + 1", "2")
	r.ok("import subprocess\np = subprocess.Popen(['sleep', '1000'], start_new_session=True)")
	pid := r.ok("p.pid").result
	r.end()
	// It was killed, and there is no event when it is gone.
	polltest.Until(t, "the end of process "+pid, func() bool {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || bytes.Contains(b, []byte(") Z "))
	})
}

// A kernel that the system killed for its memory is told from one that was
// killed by somebody, and the limit holds for what it starts, too.
func TestMemoryKillIsNamed(t *testing.T) {
	e := open(t)
	if _, err := e.launcher.MemoryGroup(1 << 30); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	for _, mode := range []python.ZygoteMode{python.ZygoteOff, python.ZygoteWait} {
		r := start(t, e, python.KernelConfig{Zygote: mode, MemoryBytes: 200 << 20})
		r.ok("x = 1")
		if res := r.run("b = bytearray(400 << 20)"); res.exception.Name != "MemoryError" {
			t.Errorf("%s: %+v", mode, res)
		}
		r.want("x", "1")
		// Shared memory is not the process's own, but it is the group's.
		res := r.run("import mmap\nm = mmap.mmap(-1, 400 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1")
		if res.Outcome != spool.TurnCrashed || res.ErrorClass != ClassOOM || res.Signal != "SIGKILL" {
			t.Errorf("%s: %+v", mode, res.Done)
		}
		r.want("1 + 1", "2")
		if res := r.run("import os; os.kill(os.getpid(), 9)"); res.ErrorClass != ClassSignal {
			t.Errorf("%s: a kill is %+v", mode, res.Done)
		}
	}
}

// The limit of memory of a spec is the limit of all that the kernel starts, and the
// turn that exceeds it names it.
func TestMemoryLimitOfSpec(t *testing.T) {
	e := open(t)
	if err := e.launcher.TryLimits(200<<20, 1.5); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	r := start(t, e, python.KernelConfig{}, spool.Spec{Limits: spool.Limits{MemoryBytes: 200 << 20, CPUs: 1.5}})
	r.want("1 + 1", "2")
	res := r.run("b = bytearray(400 << 20)")
	if res.Outcome != spool.TurnCrashed || res.ErrorClass != ClassOOM || !strings.Contains(res.Error, "ran out of memory (limit 200 MiB)") {
		t.Errorf("%+v", res.Done)
	}
	r.want("1 + 1", "2")
}

// The limit of open files of a spec is that of the interpreter, also of the next.
func TestOpenFilesLimitOfSpec(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{}, spool.Spec{Limits: spool.Limits{OpenFiles: 100}})
	for range 2 {
		r.want("__import__('resource').getrlimit(__import__('resource').RLIMIT_NOFILE)", "(100, 100)")
		r.run("import os; os.kill(os.getpid(), 9)")
	}
}

// A cell whose writes are not read any more can still be ended.
func TestBlockedOutputCanBeInterrupted(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{Zygote: python.ZygoteOff, AgainMs: never.AgainMs}, spool.Spec{Limits: spool.Limits{OutputBytes: 100_000, OutputPolicy: "block"}})
	turn := r.cell("while True: print('x' * 1000)")
	r.log.Until(t, "the limit", func(e spool.Event) bool { return e.Kind == spool.KindNotice })
	r.control(spool.Control{Op: spool.ControlInterrupt})
	if d := r.done(turn); d.Outcome != spool.TurnInterrupted {
		t.Errorf("%+v", d)
	}
	if n := len(r.log.Output(t, spool.Stdout)); n != 100_000 {
		t.Errorf("%d bytes are logged", n)
	}
	if res := r.ok("print('next')"); res.out != "next\n" {
		t.Errorf("%+v", res)
	}
}

// Closing descriptors does not end a kernel, unless the one it is reached by
// is searched out; then it is said.
func TestClosedDescriptors(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		r.ok("import os\nos.closerange(3, 256)\nos.close(1); os.close(2); os.close(0)")
		if res := r.ok("print('out')"); res.out != "out\n" {
			t.Errorf("%+v", res)
		}
		res := r.run("os.closerange(3, 1 << 16)\nwhile True: pass")
		if res.Outcome != spool.TurnCrashed || !strings.Contains(res.Error, "control socket") {
			t.Errorf("%+v", res.Done)
		}
		r.want("1 + 1", "2")
	})
}
