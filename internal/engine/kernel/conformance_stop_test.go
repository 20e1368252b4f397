//go:build linux

package kernel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

func TestInterruptReachesEveryWait(t *testing.T) {
	s := one(t, asking)
	s.ok("import time, asyncio, subprocess, threading, queue; kept = 1")
	for name, code := range map[string]string{
		"loop":       "while True: pass",
		"sleep":      "time.sleep(60)",
		"await":      "await asyncio.sleep(60)",
		"gather":     "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))",
		"run":        "asyncio.run(asyncio.sleep(60))",
		"child":      "subprocess.run(['sleep', '60'])",
		"shell":      "!sleep 60",
		"bash":       "%%bash\necho ready\nsleep 60",
		"join":       "threading.Event().wait()",
		"queue":      "queue.Queue().get()",
		"lock":       "import _thread; l = _thread.allocate_lock(); l.acquire(); l.acquire()",
		"input":      "input()",
		"read stdin": "import sys; sys.stdin.readline()",
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{t, s.run, s.ctx, nil}
			ready := "print('ready', flush=True)\n"
			if strings.HasPrefix(code, "%%") {
				ready = "" // it takes the whole cell, and says so itself
			}
			turn := s.begin(spool.Cell{Code: ready + code})
			s.see(turn, "ready")
			if err := turn.Interrupt(s.ctx, 0); err != nil {
				t.Fatal(err)
			}
			c := s.await(turn).want(spool.TurnInterrupted)
			if c.done.StoppedWith != "interrupt" || c.done.EndedBy != "interrupt" {
				t.Errorf("%+v", c.done)
			}
			s.alive("kept", "1")
		})
	}
}

func TestInterruptOfOneTurnLeavesOthers(t *testing.T) {
	s := one(t)
	first := s.begin(spool.Cell{Code: "import time\nprint('ready', flush=True)\ntime.sleep(60)"})
	second := s.begin(spool.Cell{Code: "2"})
	third := s.begin(spool.Cell{Code: "3"})
	s.see(first, "ready")
	if err := second.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.await(second).want(spool.TurnInterrupted)
	if err := first.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.await(first).want(spool.TurnInterrupted)
	s.await(third).want(spool.TurnOK).wantResult("3")
	if err := first.Interrupt(s.ctx, 0); err != nil { // it is over
		t.Error(err)
	}
}

func TestTimeoutKeepsTheState(t *testing.T) {
	t.Parallel()
	s := one(t)
	s.ok("kept = 1; import time")
	began := time.Now()
	c := s.await(s.begin(spool.Cell{Code: "time.sleep(60)", TimeoutMs: 150})).want(spool.TurnTimeout)
	if d := time.Since(began); d < 150*time.Millisecond || d > settleIn/2 {
		t.Errorf("it took %v", d)
	}
	if c.done.EndedBy != "timeout" || !strings.Contains(c.done.Error, "150ms") {
		t.Errorf("%+v", c.done)
	}
	s.alive("kept", "1")
}

func TestTimeoutOfTheRunIsTheDefault(t *testing.T) {
	t.Parallel()
	s := one(t, config(func(c *python.KernelConfig) { c.CellTimeoutMs = 150 }))
	s.exec("import time; time.sleep(60)").want(spool.TurnTimeout)
	s.await(s.begin(spool.Cell{Code: "import time; time.sleep(0.3); 5", TimeoutMs: 20_000})).want(spool.TurnOK).wantResult("5")
}

func TestCellInCIsKilledOnSchedule(t *testing.T) {
	s := one(t, hasty)
	turn := s.begin(spool.Cell{Code: `
import ctypes
c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
c.pthread_mutex_lock(mutex)
while True:
    try:
        print('ready', flush=True)
        c.pthread_mutex_lock(mutex)
    except BaseException:
        pass`})
	s.see(turn, "ready")
	next := s.begin(spool.Cell{Code: "'never'"})
	s.queued(1)
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	c := s.await(turn).want(spool.TurnKilled)
	if c.done.StoppedWith != "terminate" && c.done.StoppedWith != "kill" {
		t.Errorf("%+v", c.done)
	}
	// What waited for it is not run in an interpreter without its state.
	if d := s.await(next).done; d.Outcome != spool.TurnKilled && d.Outcome != spool.TurnCrashed {
		t.Errorf("%+v", d)
	}
	s.alive("1", "1")
	if !slices.Contains(s.notices(), kernel.NoticeRestarted) {
		t.Errorf("notices %q", s.notices())
	}
}

func TestAnyCellSettlesWithinSevenSeconds(t *testing.T) {
	t.Parallel()
	s := one(t, usual)
	turn := s.begin(spool.Cell{Code: `
import ctypes, signal
for n in (signal.SIGINT, signal.SIGTERM):
    signal.signal(n, signal.SIG_IGN)
c, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
c.pthread_mutex_lock(mutex)
print('ready', flush=True)
while True:
    try: c.pthread_mutex_lock(mutex)  # and nobody else runs Python meanwhile
    except BaseException: pass`})
	s.see(turn, "ready")
	began := time.Now()
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnKilled)
	const promised = 7 * time.Second
	if d := time.Since(began); d < kernel.DefaultKill || d > 5*promised { // a busy machine takes longer
		t.Errorf("it took %v", d)
	}
	if kernel.DefaultKill > promised-time.Second {
		t.Errorf("SIGKILL comes after %v", kernel.DefaultKill)
	}
}

func TestEndOfACellThatSwallowsIsNamed(t *testing.T) {
	s := one(t, once)
	turn := s.begin(spool.Cell{Code: `
import time
try:
    print('ready', flush=True)
    time.sleep(60)
except KeyboardInterrupt: print('caught')
kept = 2`})
	s.see(turn, "ready")
	if err := turn.Interrupt(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	c := s.await(turn)
	c.want(spool.TurnOK)
	c.wantOutput("ready\ncaught\n")
	s.alive("kept", "2")
}

// Crashes.

func TestCrashesAreNamedAndNothingIsReplayed(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	note := fmt.Sprintf("open(%q, 'a').write('x')\n", mark)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := mkfifo(fifo); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, code, class, signal string }{
		{"exit", "import os; os._exit(3)", kernel.ClassExit, ""},
		{"segfault", "import ctypes; ctypes.string_at(0)", kernel.ClassSegfault, "SIGSEGV"},
		{"abort", "import os; os.abort()", kernel.ClassSignal, "SIGABRT"},
		{"killed", "import os; os.kill(os.getpid(), 9)", kernel.ClassSignal, "SIGKILL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s := one(t)
			s.ok("x = 1")
			turn := s.begin(spool.Cell{Code: note + fmt.Sprintf("open(%q).read()\n", fifo) + "print('last words')\n" + tt.code})
			pending := s.begin(spool.Cell{Code: note})
			s.queued(1)
			if err := os.WriteFile(fifo, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c := s.await(turn).want(spool.TurnCrashed)
			c.wantOutput("last words\n", spool.Stdout)
			if c.done.ErrorClass != tt.class || c.done.Signal != tt.signal || c.done.Error == "" {
				t.Errorf("%+v", c.done)
			}
			if d := s.await(pending).done; d.Outcome == spool.TurnOK {
				t.Errorf("a cell that waited was run: %+v", d)
			}
			x := s.exec("x").want(spool.TurnError).exception()
			if x.Name != "NameError" {
				t.Errorf("%+v", x)
			}
			if !slices.Contains(s.notices(), kernel.NoticeRestarted) {
				t.Errorf("notices %q", s.notices())
			}
			if b, err := os.ReadFile(mark); err != nil || string(b) != "x" {
				t.Errorf("cells ran %q, %v", b, err)
			}
		})
	}
}

func TestKernelKilledMidCell(t *testing.T) {
	s := one(t)
	turn := s.begin(spool.Cell{Code: "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"})
	s.see(turn, "\n")
	info, err := s.run.Info(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c := s.await(turn).want(spool.TurnCrashed)
	if c.done.Signal != "SIGKILL" {
		t.Errorf("%+v", c.done)
	}
	s.alive("1", "1")
}

func TestMemoryLimitRaises(t *testing.T) {
	s := one(t, config(func(c *python.KernelConfig) { c.MemoryBytes = 300 << 20 }))
	c := s.exec("x = bytearray(1 << 30)")
	if c.done.Outcome == spool.TurnError {
		c.wantException("MemoryError", "")
	} else {
		c.want(spool.TurnCrashed)
	}
	s.alive("1", "1")
}

// The end of runs.

func TestStopEndsTheTree(t *testing.T) {
	dir := t.TempDir()
	s := one(t, spec(func(s *spool.Spec) { s.Limits.Grace = 300 * time.Millisecond }))
	s.ok(fmt.Sprintf(`
import subprocess, os, signal
child = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; echo $$ > %[1]s/a; while :; do sleep 1; done"])
escaped = subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM INT HUP; echo $$ > %[1]s/b; while :; do sleep 1; done"])
while not all(os.path.exists("%[1]s/" + n) and open("%[1]s/" + n).read().strip() for n in "ab"): pass
signal.signal(signal.SIGTERM, signal.SIG_IGN)`, dir))
	turn := s.begin(spool.Cell{Code: "while True:\n    try:\n        print('ready', flush=True)\n        child.wait()\n    except BaseException: pass"})
	s.see(turn, "ready")
	if err := s.run.Stop(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnKilled)
	outcome, err := s.run.Wait(s.ctx)
	if err != nil || outcome.Kind != spool.Exited {
		t.Errorf("%v, %v", outcome, err)
	}
	for _, name := range []string{"a", "b"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		// It was killed. Its descriptors are closed before it is gone, and
		// nobody is told when that is.
		polltest.Until(t, "the end of child "+name, func() bool { return !living(strings.TrimSpace(string(b))) })
	}
	confirmed := false
	for _, e := range s.log() {
		var n struct {
			Code string
			Data struct{ Confirmed bool }
		}
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == kernel.NoticeShutdown {
			confirmed = n.Data.Confirmed
		}
	}
	if !confirmed {
		t.Error("the end is not confirmed")
	}
}

// living reports whether a process runs.
func living(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func TestStopSettlesWhatWaits(t *testing.T) {
	s := one(t, slowly)
	running := s.begin(spool.Cell{Code: "import time\nprint('ready', flush=True)\ntime.sleep(60)"})
	waiting := s.begin(spool.Cell{Code: "1"})
	s.see(running, "ready")
	s.queued(1)
	if err := s.run.Stop(s.ctx); err != nil {
		t.Fatal(err)
	}
	if d := s.await(running).done; d.Outcome != spool.TurnInterrupted || d.EndedBy != "stop" {
		t.Errorf("the cell that ran ended with %+v", d)
	}
	if d := s.await(waiting).done; d.Outcome != spool.TurnKilled || d.ErrorClass != "not_run" {
		t.Errorf("the cell that waited ended with %+v", d)
	}
	if o, err := s.run.Wait(s.ctx); err != nil || o.Kind != spool.Exited || o.Code != 0 {
		t.Errorf("the run ended with %v, %v", o, err)
	}
	if _, err := s.run.Exec(s.ctx, "", spool.Cell{Code: "1"}); !errors.Is(err, spool.ErrInputClosed) && !errors.Is(err, spool.ErrEnded) {
		t.Errorf("a run that was stopped takes cells: %v", err)
	}
}

func TestIdleRunEnds(t *testing.T) {
	t.Parallel()
	s := one(t, spec(func(s *spool.Spec) { s.Limits.Idle = 5 * time.Second }))
	s.ok("import time; time.sleep(5.2)") // a cell is no idleness
	outcome, err := s.run.Wait(s.ctx)
	if err != nil || outcome.Kind != spool.Exited || outcome.Reason != "timed out after 5s without a cell" {
		t.Errorf("%v, %v", outcome, err)
	}
	if !slices.Contains(s.notices(), kernel.NoticeIdleTimeout) {
		t.Errorf("notices %q", s.notices())
	}
}

func TestRestartBeginsAgain(t *testing.T) {
	s := one(t)
	s.ok("x = 1")
	turn := s.begin(spool.Cell{Code: "import time\nprint('ready', flush=True)\ntime.sleep(60)"})
	s.see(turn, "ready")
	if err := s.run.Control(s.ctx, spool.Control{Op: spool.ControlRestart}); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnKilled)
	s.exec("x").want(spool.TurnError).wantException("NameError", "")
	if c := s.ok("1"); c.done.ExecutionCount != 2 {
		t.Errorf("%s", c)
	}
}

func TestOutputPolicyStopsWhatPrintsForEver(t *testing.T) {
	for _, policy := range []string{"stop", "truncate"} {
		t.Run(policy, func(t *testing.T) {
			s := one(t, spec(func(s *spool.Spec) { s.Limits.OutputBytes, s.Limits.OutputPolicy = 1<<20, policy }))
			s.ok("kept = 1")
			turn := s.begin(spool.Cell{Code: "while True: print('x' * 1000)"})
			s.noticed(kernel.NoticeOutputLimit)
			if policy == "truncate" {
				if err := turn.Interrupt(s.ctx, 0); err != nil {
					t.Fatal(err)
				}
			}
			c := s.await(turn)
			if c.done.Outcome == spool.TurnOK {
				t.Errorf("%+v", c.done)
			}
			if policy == "stop" && c.done.EndedBy != "output" {
				t.Errorf("%+v", c.done)
			}
			if n := len(c.output()); n < 1<<19 || n > 2<<20 {
				t.Errorf("%d bytes are kept", n)
			}
			truncated := slices.ContainsFunc(c.events, func(e spool.Event) bool { return e.Kind == spool.KindTruncated })
			if policy == "truncate" && !truncated {
				t.Error("no event reports that output is missing")
			}
			s.alive("kept", "1")
		})
	}
}

func TestRunThatEndedTakesNothing(t *testing.T) {
	s := one(t)
	if err := s.run.Kill(s.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run.Wait(s.ctx); err != nil {
		t.Fatal(err)
	}
	_, err := s.run.Exec(s.ctx, "", spool.Cell{Code: "1"})
	if !errors.Is(err, spool.ErrInputClosed) && !errors.Is(err, spool.ErrEnded) {
		t.Errorf("error %v", err)
	}
}

func TestInterruptRepeatsNoOutput(t *testing.T) {
	s := one(t)
	for i := range 60 {
		turn := s.begin(spool.Cell{Code: "print('once', flush=True)\nwhile True: print('.', end='', flush=True)"})
		s.see(turn, "once")
		if err := turn.Interrupt(s.ctx, 0); err != nil {
			t.Fatal(err)
		}
		c := s.await(turn).want(spool.TurnInterrupted)
		if out := c.output(spool.Stdout); strings.Count(out, "once") != 1 {
			t.Fatalf("cell %d wrote %q", i, out)
		}
	}
	// Numbers show what is repeated or missing, whatever the moment.
	for range 30 {
		turn := s.begin(spool.Cell{Code: "import itertools\nfor i in itertools.count(): print(i, flush=True)"})
		s.see(turn, "\n5\n")
		if err := turn.Interrupt(s.ctx, 0); err != nil {
			t.Fatal(err)
		}
		c := s.await(turn).want(spool.TurnInterrupted)
		for i, line := range strings.Split(strings.TrimSuffix(c.output(spool.Stdout), "\n"), "\n") {
			if line != fmt.Sprint(i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	}
}
