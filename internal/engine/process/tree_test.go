//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

var path = map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}

func shell(script string) spool.Spec {
	return spool.Spec{Argv: []string{"/bin/sh", "-c", script}, Env: path}
}

func start(t testing.TB, e *Engine, spec spool.Spec) (engine.Session, *enginetest.Log) {
	t.Helper()
	log := enginetest.NewLog()
	s, err := e.Start(t.Context(), spec, log)
	if err != nil {
		t.Fatalf("start %q: %v", spec.Argv, err)
	}
	return s, log
}

func control(t testing.TB, s engine.Session, c spool.Control) {
	t.Helper()
	if err := s.Control(t.Context(), c); err != nil {
		t.Fatalf("%s: %v", c.Op, err)
	}
}

// alive returns those of the pids whose processes have not ended.
func alive(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// wantEnded waits for the end of killed processes: a process leaves its control group
// and closes its streams a moment before.
func wantEnded(t testing.TB, pids []int) {
	t.Helper()
	if !polltest.Holds(func() bool { return len(alive(pids)) == 0 }) {
		left := alive(pids)
		t.Errorf("%d processes are left: %v", len(left), left)
	}
}

// pidLines waits until the output has so many lines and returns the numbers.
func pidLines(t testing.TB, log *enginetest.Log, n int) []int {
	t.Helper()
	var out []byte
	log.Until(t, fmt.Sprintf("%d lines", n), func(e spool.Event) bool {
		if e.Kind == spool.KindOutput && e.Stream == spool.Stdout {
			out = append(out, e.Bytes...)
		}
		return strings.Count(string(out), "\n") >= n
	})
	var pids []int
	for f := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// rabbits leave their session and are orphaned; two processes each.
const rabbits = `i=0; while [ $i -lt 40 ]; do
	setsid sh -c 'sleep 1000 & echo $!; echo $$; exec sleep 1000' &
	i=$((i+1))
done; echo $$; wait`

func TestStopEndsEscapees(t *testing.T) {
	for _, mode := range modes(t) {
		for _, op := range []spool.ControlOp{spool.ControlStop, spool.ControlKill} {
			t.Run(string(mode)+"/"+string(op), func(t *testing.T) {
				e := open(t, Options{Tree: mode})
				s, log := start(t, e, shell(rabbits))
				pids := pidLines(t, log, 81)
				if n := len(alive(pids)); n != 81 {
					t.Fatalf("%d of 81 processes are alive", n)
				}
				control(t, s, spool.Control{Op: op, Grace: time.Hour}) // no process needs it
				enginetest.Wait(t, s)
				wantEnded(t, pids)
				if got := log.Notices(t); !slices.Equal(got, []string{NoticeTreeKill}) {
					t.Errorf("notices are %q:\n%s", got, log.Dump(t))
				}
			})
		}
	}
}

// A daemon forks twice, leaves the session, its streams and its environment.
func TestStopEndsDaemon(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e := open(t, Options{Tree: mode})
			file := filepath.Join(t.TempDir(), "pid")
			s, log := start(t, e, shell(`(setsid sh -c 'sleep 1000 & echo $! > `+file+`.new; mv `+file+`.new `+file+`' >/dev/null 2>&1 </dev/null &)
				while [ ! -e `+file+` ]; do sleep 0.01; done; echo up; exec sleep 1000`))
			log.UntilOutput(t, spool.Stdout, "up")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			if len(alive([]int{pid})) == 0 {
				t.Fatal("the daemon is not alive")
			}
			control(t, s, spool.Control{Op: spool.ControlStop})
			enginetest.Wait(t, s)
			wantEnded(t, []int{pid})
			last := log.All(t)
			if got := last[len(last)-1].Kind; got != spool.KindExited && got != spool.KindNotice {
				t.Errorf("the log is\n%s", log.Dump(t))
			}
		})
	}
}

// Newer kernels kill what is cloned into a group that was ever killed, so such a
// group must not be used again.
func TestStartAfterKill(t *testing.T) {
	e := open(t, Options{})
	for range 20 {
		s, log := start(t, e, shell("echo up; sleep 1000"))
		log.UntilOutput(t, spool.Stdout, "up")
		control(t, s, spool.Control{Op: spool.ControlKill})
		enginetest.Wait(t, s)
		s, log = start(t, e, shell("(/bin/echo one); /bin/echo two; exit 3"))
		if got := enginetest.Wait(t, s); got.Code != 3 || string(log.Output(t, spool.Stdout)) != "one\ntwo\n" {
			t.Fatalf("outcome is %v:\n%s", got, log.Dump(t))
		}
	}
}

func TestKillWithoutEscapeesSaysNothing(t *testing.T) {
	for _, mode := range modes(t) {
		e := open(t, Options{Tree: mode})
		s, log := start(t, e, shell("sleep 1000 & echo up; wait"))
		log.UntilOutput(t, spool.Stdout, "up")
		control(t, s, spool.Control{Op: spool.ControlKill})
		enginetest.Wait(t, s)
		if got := log.Notices(t); len(got) != 0 {
			t.Errorf("%s: notices are %q", mode, got)
		}
	}
}

func TestBackgroundOutlivesLeader(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e := open(t, Options{Tree: mode})
			s, log := start(t, e, shell("sleep 1000 & echo $!"))
			pid := pidLines(t, log, 1)
			log.Until(t, "exited", func(e spool.Event) bool { return e.Kind == spool.KindExited })
			if len(alive(pid)) != 1 {
				t.Fatal("the background process ended with its parent")
			}
			control(t, s, spool.Control{Op: spool.ControlStop, Grace: enginetest.Patience})
			if got := enginetest.Wait(t, s); got != (spool.Outcome{Kind: spool.Exited}) {
				t.Errorf("outcome is %v", got)
			}
			wantEnded(t, pid)
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e, err := New(Options{Tree: mode})
			if err != nil {
				t.Fatal(err)
			}
			s, log := start(t, e, shell("setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
			pids := pidLines(t, log, 1)
			enginetest.Wait(t, s) // ended, but the daemon lives on
			polltest.Until(t, "a daemon", func() bool { return len(alive(pids)) == 1 })
			s2, log2 := start(t, e, shell("echo $$; exec sleep 1000"))
			pids = append(pids, pidLines(t, log2, 1)...)
			owner := e.Owner()
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			wantEnded(t, pids)
			if got := s2.Wait(); got.Signal != "SIGKILL" {
				t.Errorf("outcome is %v", got)
			}
			if left, _ := filepath.Glob("/sys/fs/cgroup/*/spool/" + owner); len(left) > 0 {
				t.Errorf("control groups are left: %v", left)
			}
			if _, err := e.Start(t.Context(), shell("true"), enginetest.NewLog()); !errors.Is(err, spool.ErrClosed) {
				t.Errorf("start after close: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Errorf("close again: %v", err)
			}
		})
	}
}

func TestForkBombIsBounded(t *testing.T) {
	e := open(t, Options{})
	if !e.Guarantees().Pids {
		skiptest.Missing(t, "the number of processes cannot be limited here")
	}
	spec := shell(`bomb() { bomb | bomb & }; trap '' TERM; bomb; echo lit; wait; sleep 1000`)
	spec.Limits.Pids = 60
	s, log := start(t, e, spec)
	log.UntilOutput(t, spool.Stderr, "ork") // "Cannot fork", "fork: retry"
	if m, err := s.(*session).tree.Count(); err != nil || m.Group+m.Escaped > 60 {
		t.Errorf("%+v processes, %v", m, err)
	}
	if err := exec.Command("/bin/true").Run(); err != nil { // the limit is not ours
		t.Error(err)
	}
	control(t, s, spool.Control{Op: spool.ControlKill})
	enginetest.Wait(t, s)
	if m, err := s.(*session).tree.Count(); err != nil || !m.None() {
		t.Errorf("%+v processes are left, %v", m, err)
	}
	// The group can be used again, with another limit.
	for _, pids := range []int{1, 2, 0} {
		spec := shell("exit 3")
		spec.Limits.Pids = pids
		s, _ := start(t, e, spec)
		if got := enginetest.Wait(t, s); got.Code != 3 {
			t.Errorf("limit %d: outcome is %v", pids, got)
		}
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); err != nil || strings.Contains(string(own), "/spool/") {
		t.Errorf("we are in a control group of a run:\n%s", own)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/cgroup")
	for _, f := range tasks {
		if own, err := os.ReadFile(f); err == nil && strings.Contains(string(own), "/spool/") {
			t.Errorf("a thread of ours is in a control group of a run:\n%s", own)
		}
	}
}

func TestPidsLimitWithoutGroups(t *testing.T) {
	e := open(t, Options{Tree: launch.TreeWalk})
	if got := e.Guarantees(); got != (Guarantees{Kill: launch.KillWalk}) {
		t.Errorf("guarantees are %+v", got)
	}
	spec := shell("exit 0")
	spec.Limits.Pids = 100
	_, err := e.Start(t.Context(), spec, enginetest.NewLog())
	var se *spool.StartError
	if !errors.As(err, &se) || se.Reason != engine.StartUnsupported {
		t.Errorf("start: %v", err)
	}
	s, _ := start(t, e, shell("exit 0")) // the default is a wish
	enginetest.Wait(t, s)
}

// Somebody out of reach keeps the stream open: here, this test does.
func TestHeldStreamsAreGivenUp(t *testing.T) {
	e := open(t, Options{})
	e.forceAfter = 50 * time.Millisecond
	s, log := start(t, e, shell("echo up; exec sleep 1000")) // one process, so that none is left with its leader
	log.UntilOutput(t, spool.Stdout, "up")
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", s.Pid()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	control(t, s, spool.Control{Op: spool.ControlKill})
	if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
		t.Errorf("outcome is %v", got)
	}
	if got := log.Notices(t); !slices.Equal(got, []string{NoticeStreamsHeld}) {
		t.Errorf("notices are %q", got)
	}
}

func TestRefusedLogEndsRun(t *testing.T) {
	e := open(t, Options{})
	log := enginetest.NewLog()
	if _, err := log.Append(spool.Event{Kind: spool.KindClosed}); err != nil {
		t.Fatal(err)
	}
	s, err := e.Start(context.Background(), shell("while :; do echo x; done"), log)
	if err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
		t.Errorf("outcome is %v", got)
	}
}

func TestChildIsClean(t *testing.T) {
	// The process that started us left a descriptor open and a signal ignored.
	var p [2]int
	if err := unix.Pipe2(p[:], 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	signal.Ignore(unix.SIGHUP, unix.SIGTSTP)
	defer signal.Reset(unix.SIGHUP, unix.SIGTSTP)
	e := open(t, Options{})
	for _, tty := range []*spool.Size{nil, {Rows: 24, Cols: 80}} {
		s, log := start(t, e, spool.Spec{Argv: []string{"/bin/ls", "/proc/self/fd"}, TTY: tty})
		enginetest.Wait(t, s)
		out := append(log.Output(t, spool.Stdout), log.Output(t, spool.PTY)...)
		if got := strings.Fields(string(out)); !slices.Equal(got, []string{"0", "1", "2", "3"}) { // 3 is ls itself
			t.Errorf("descriptors are %v", got)
		}
		s, log = start(t, e, spool.Spec{Argv: []string{"/bin/grep", "-E", "SigIgn|SigBlk", "/proc/self/status"}, TTY: tty})
		enginetest.Wait(t, s)
		out = append(log.Output(t, spool.Stdout), log.Output(t, spool.PTY)...)
		// Signals 32 and 33 are the C library's own: nobody can set them.
		got := strings.ReplaceAll(string(out), "0000000080000000", "0000000000000000")
		if strings.Count(got, "0000000000000000") != 2 {
			t.Errorf("signals are\n%s", out)
		}
	}
	s, log := start(t, e, shell("ps -o pid=,pgid=,sid= -p $$"))
	enginetest.Wait(t, s)
	want := fmt.Sprintf("%d %d %d", s.Pid(), s.Pid(), s.Pid())
	if got := strings.Join(strings.Fields(string(log.Output(t, spool.Stdout))), " "); got != want {
		t.Errorf("pid, group and session are %s, want %s", got, want)
	}
}
