package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

// never is a schedule in which nothing follows an interrupt within a test.
var never = python.KernelConfig{AgainMs: time.Hour.Milliseconds()}

// untilStatus waits until a field of the status of a process is as it should
// be. The system tells nobody when that is so.
func untilStatus(t *testing.T, pid int, field string, ok func(value string) bool) {
	t.Helper()
	polltest.Until(t, fmt.Sprintf("%s of process %d as wanted", field, pid), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "\n"+field+":")
		value, _, _ := strings.Cut(rest, "\n")
		return ok(strings.TrimSpace(value))
	})
}

// An interrupt that comes before the cell has begun is not lost, and one that
// comes after the cell has ended does not hit the next.
func TestInterruptBeforeTheCellBegins(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		cfg.AgainMs = never.AgainMs
		r := start(t, e, cfg)
		r.ok("import time; kept = 1")
		pid := r.Pid()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		untilStatus(t, pid, "State", func(v string) bool { return strings.HasPrefix(v, "T") })
		turn := r.send(spool.InputCell, spool.Cell{Code: "time.sleep(3600)", TimeoutMs: 1})
		untilStatus(t, pid, "SigPnd", func(v string) bool {
			pending, err := strconv.ParseUint(v, 16, 64)
			return err == nil && pending&(1<<(unix.SIGINT-1)) != 0
		})
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if res := r.turnEvents(turn); res.Outcome != spool.TurnTimeout || res.StoppedWith != "interrupt" {
			t.Errorf("%+v", res)
		}
		if err := unix.Kill(pid, unix.SIGINT); err != nil { // nobody asked a cell to stop
			t.Fatal(err)
		}
		r.want("time.sleep(0.01); kept", "1")
	})
}

func TestInterruptRightAfterTheCell(t *testing.T) {
	e := open(t)
	r := start(t, e, never)
	r.ok("import time")
	for range 100 {
		turn := r.cell("time.sleep(3600)")
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted {
			t.Fatalf("%+v", d)
		}
	}
	r.want("1", "1")
}

// An interrupt that comes just before the cell begins to wait in the system is
// noticed by Python after the wait. It is repeated, so that the cell ends soon.
func TestInterruptRightBeforeAWait(t *testing.T) {
	t.Parallel()
	e := open(t)
	e.loseInterrupts = true // as if each came at that moment
	r := start(t, e, python.KernelConfig{Input: python.InputAsk, AgainMs: never.AgainMs})
	r.ok("import threading, time")
	for _, code := range []string{
		"time.sleep(3600)",
		"threading.Event().wait()",
		"input()",
		"threading.Thread(target=input, daemon=True).start()\ntime.sleep(3600)", // another thread reads the messages
	} {
		turn := r.cell("print('go', flush=True)\n" + code)
		r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != "interrupt" {
			t.Errorf("%s: %+v", code, d)
		}
	}
}

// The second interrupt wakes the main thread, although other threads could
// take the signal and the one that has the stacks dumped comes with it.
func TestSecondInterruptReachesTheMainThread(t *testing.T) {
	t.Parallel()
	e := open(t)
	r := start(t, e, python.KernelConfig{AgainMs: 3000, TerminateMs: time.Hour.Milliseconds()})
	r.ok(`
import threading, time
stop = threading.Event()
for _ in range(4): threading.Thread(target=stop.wait, daemon=True).start()`)
	for range 2 {
		turn := r.cell("try:\n    print('go', flush=True)\n    time.sleep(3600)\nexcept KeyboardInterrupt: pass\ntime.sleep(3600)")
		r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != "interrupt" {
			t.Fatalf("%+v\n%s", d, r.log.Dump(t))
		}
	}
}

// A cell that only ends at SIGTERM, and does so by itself, keeps its state: an
// interpreter that survived goes on.
func TestCellThatEndsAtSIGTERMKeepsTheState(t *testing.T) {
	e := open(t)
	r := start(t, e, python.KernelConfig{AgainMs: 10, TerminateMs: 20, KillMs: time.Hour.Milliseconds()})
	turn := r.cell(`
import signal
class Enough(Exception): pass
def enough(*_): raise Enough
signal.signal(signal.SIGTERM, enough)
kept = n = 1
while True:
    try:
        print('go', flush=True)
        while True: n += 1
    except KeyboardInterrupt: pass`)
	r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
	pid := r.Pid()
	r.control(spool.Control{Op: spool.ControlInterrupt})
	if d := r.done(turn); d.StoppedWith != "terminate" || !strings.HasPrefix(d.Error, "Enough") {
		t.Errorf("%+v", d)
	}
	r.want("kept", "1")
	if r.Pid() != pid || slices.Contains(r.log.Notices(t), NoticeRestarted) {
		t.Errorf("process %d, not %d; notices %v", r.Pid(), pid, r.log.Notices(t))
	}
}

// A cell that a stop of the run interrupts says that an interrupt was enough;
// one that a kill ends is killed.
func TestEndOfTheRunSaysWhatItTook(t *testing.T) {
	e := open(t)
	for op, want := range map[spool.ControlOp]spool.Done{
		spool.ControlStop: {Outcome: spool.TurnInterrupted, StoppedWith: "interrupt"},
		spool.ControlKill: {Outcome: spool.TurnKilled, StoppedWith: "kill"},
	} {
		r := start(t, e, python.KernelConfig{})
		turn := r.cell("import time; print('go', flush=True); time.sleep(3600)")
		r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
		r.control(spool.Control{Op: op, Grace: time.Hour})
		if d := r.done(turn); d.Outcome != want.Outcome || d.StoppedWith != want.StoppedWith {
			t.Errorf("%s: %+v", op, d)
		}
		r.Wait()
	}
}

// An interpreter that not even SIGKILL ends in time is no reason to wait: the
// turn and the run end, and say that nobody knows. A thread of it that is
// traced, and not waited for by its tracer, keeps the process from going.
func TestInterpreterThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.reapTimeout = time.Second
	r, err := tryStart(t, e, python.KernelConfig{Zygote: python.ZygoteOff, AgainMs: 10, TerminateMs: 20, KillMs: 30})
	if err != nil {
		t.Fatal(err)
	}
	turn := r.cell("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nn = 0\nwhile True:\n    try:\n        print('go', flush=True)\n        while True: n += 1\n    except KeyboardInterrupt: pass")
	r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
	pid := r.Pid()
	runtime.LockOSThread() // this thread is the tracer
	defer runtime.UnlockOSThread()
	tid := otherThread(t, pid)
	if err := unix.PtraceSeize(tid); err != nil { // it is our child
		t.Fatal(err)
	}
	r.control(spool.Control{Op: spool.ControlInterrupt})
	if d := r.done(turn); d.Outcome != spool.TurnKilled {
		t.Errorf("%+v", d)
	}
	if o := r.Wait(); o.Kind != spool.Unknown {
		t.Errorf("%+v", o)
	}
	for _, id := range []int{tid, pid} { // let it go
		if _, err := unix.Wait4(id, nil, unix.WALL, nil); err != nil {
			t.Errorf("wait for %d: %v", id, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// otherThread returns a thread of a process that is not its main thread.
func otherThread(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if id, err := strconv.Atoi(filepath.Base(f)); err == nil && id != pid {
			return id
		}
	}
	t.Fatalf("process %d has one thread: %q", pid, files)
	return 0
}
