//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

func TestWallTimeout(t *testing.T) {
	e := open(t, Options{})
	const grace = 50 * time.Millisecond
	for wall := 100 * time.Millisecond; ; wall *= 2 {
		spec := shell("trap '' TERM; while :; do echo x; sleep 0.01; done")
		spec.Limits = spool.Limits{Wall: wall, Grace: grace}
		begin := time.Now()
		s, log := start(t, e, spec)
		got := enginetest.Wait(t, s)
		if got.Signal == "SIGTERM" && len(log.Output(t, spool.Stdout)) == 0 && wall < enginetest.Patience {
			continue // before the shell ignored the signal
		}
		if got.Signal != "SIGKILL" || got.Reason != fmt.Sprintf("timed out after %v", wall) {
			t.Errorf("outcome is %v", got)
		}
		if took := time.Since(begin); took < wall+grace {
			t.Errorf("ended after %v", took)
		}
		wantNotice(t, log, NoticeTimeout)
		return
	}
}

func TestIdleTimeout(t *testing.T) {
	const idle = 400 * time.Millisecond
	e := open(t, Options{Limits: spool.Limits{Idle: idle, Grace: enginetest.Patience}})
	s, log := start(t, e, shell("for i in 1 2 3 4 5 6 7 8; do sleep 0.08; echo x; done; exec sleep 1000"))
	if got := enginetest.Wait(t, s); got.Signal != "SIGTERM" || got.Reason != "timed out after 400ms without output" {
		t.Errorf("outcome is %v", got)
	}
	wantNotice(t, log, NoticeIdleTimeout)
	// The limit counts from the last output, which on a busy machine need not be
	// the last line. Without output in between it would come 80 ms after a line.
	var last time.Time
	for _, e := range log.All(t) {
		switch e.Kind {
		case spool.KindOutput:
			last = e.Time
		case spool.KindNotice:
			if silent := e.Time.Sub(last); silent < idle/2 {
				t.Errorf("timed out %v after output", silent)
			}
		}
	}
}

// TestOutOfMemory checks that the outcome names the limit of memory if the kernel
// killed a process at it, unless the program coped with that, and that another
// SIGKILL is not taken for it.
func TestOutOfMemory(t *testing.T) {
	e := open(t, Options{})
	if err := e.launcher.TryLimits(32<<20, 0); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	const reason = "ran out of memory (limit 32 MiB)"
	for _, tt := range []struct {
		script string
		want   spool.Outcome
		notice bool
	}{
		{"exec tail /dev/zero", spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL", Reason: reason}, true},
		{"tail /dev/zero; exit 3", spool.Outcome{Kind: spool.Exited, Code: 3, Reason: reason}, true},
		{"tail /dev/zero; exit 0", spool.Outcome{Kind: spool.Exited}, true},
		{"kill -9 $$", spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"}, false},
	} {
		spec := shell(tt.script)
		spec.Limits.MemoryBytes = 32 << 20
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got != tt.want {
			t.Errorf("%s: outcome %v, want %v", tt.script, got, tt.want)
		}
		if got := slices.Contains(log.Notices(t), NoticeOutOfMemory); got != tt.notice {
			t.Errorf("%s: notices %q", tt.script, log.Notices(t))
		}
	}
}

// TestOpenFilesLimit starts processes with a limit of open files, isolated and not.
func TestOpenFilesLimit(t *testing.T) {
	e := open(t, Options{})
	for _, i := range []*spool.Isolation{nil, {Profile: "none"}, {Profile: "workspace-write"}} {
		if i != nil && i.Profile != "none" {
			needs(t, e, *i)
		}
		spec := shell("ulimit -n; ulimit -Hn")
		spec.Cwd, spec.Isolation, spec.Limits.OpenFiles = t.TempDir(), i, 50
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got.Code != 0 || got.Kind != spool.Exited {
			t.Errorf("%+v: outcome %v", i, got)
		}
		if got := log.Output(t, spool.Stdout); string(got) != "50\n50\n" {
			t.Errorf("%+v: the limits are %q", i, got)
		}
	}
	spec := shell("true")
	spec.Argv[0] = "/nonexistent"
	spec.Limits.OpenFiles = 50
	var refused *spool.StartError
	if _, err := e.Start(t.Context(), spec, enginetest.NewLog()); !errors.As(err, &refused) || refused.Reason != engine.StartNotFound {
		t.Errorf("the start of a program that does not exist: %v", err)
	}
	spec = shell("true")
	spec.Limits.OpenFiles = limits.MaxOpenFiles
	if _, err := e.Start(t.Context(), spec, enginetest.NewLog()); err != nil && (!errors.As(err, &refused) || refused.Reason != engine.StartUnsupported) {
		t.Errorf("a limit above that of this process: %v", err)
	}
}

// TestPidsLimitIsNamed has a fork refused at the limit of processes: the outcome names
// it, unless the program coped with that. The next run in the same control group did
// not meet it.
func TestPidsLimitIsNamed(t *testing.T) {
	e := open(t, Options{})
	if !e.launcher.Guarantees().Pids {
		skiptest.Missing(t, "no limit of processes")
	}
	const reason = "reached its limit of processes and threads (3)"
	for _, tt := range []struct {
		script string
		want   spool.Outcome
		notice bool
	}{
		{"exit 4", spool.Outcome{Kind: spool.Exited, Code: 4}, false},
		{"true | true | true | true | true", spool.Outcome{Kind: spool.Exited, Code: 2, Reason: reason}, true},
		{"exit 5", spool.Outcome{Kind: spool.Exited, Code: 5}, false},
		{"trap 'exit 0' EXIT; true | true | true | true | true", spool.Outcome{Kind: spool.Exited}, true},
		{"exit 6", spool.Outcome{Kind: spool.Exited, Code: 6}, false},
	} {
		spec := shell(tt.script)
		spec.Limits.Pids = 3
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got != tt.want {
			t.Errorf("%s: outcome %v, want %v", tt.script, got, tt.want)
		}
		if got := slices.Contains(log.Notices(t), limits.NoticePids); got != tt.notice {
			t.Errorf("%s: notices %q", tt.script, log.Notices(t))
		}
	}
}

// TestThrottlingIsNamed has a run wait because of its limit of processor time.
func TestThrottlingIsNamed(t *testing.T) {
	e := open(t, Options{})
	if err := e.launcher.TryLimits(0, limits.MinCPUs); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	spec := shell("while :; do :; done")
	spec.Limits.CPUs = limits.MinCPUs
	s, log := start(t, e, spec)
	polltest.Until(t, "throttled", func() bool { return s.(*session).tree.Throttled() > 0 })
	control(t, s, spool.Control{Op: spool.ControlKill})
	if got, want := enginetest.Wait(t, s), (spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"}); got != want {
		t.Errorf("outcome %v, want %v", got, want)
	}
	if !slices.Contains(log.Notices(t), limits.NoticeThrottled) {
		t.Errorf("notices %q", log.Notices(t))
	}
}

// TestMemoryLimitIsRefused checks that a start with a limit that cannot be enforced
// fails and says why.
func TestMemoryLimitIsRefused(t *testing.T) {
	e := open(t, Options{Tree: launch.TreeWalk})
	for _, l := range []spool.Limits{{MemoryBytes: 1 << 30}, {CPUs: 1}} {
		spec := shell("exit 0")
		spec.Limits = l
		_, err := e.Start(t.Context(), spec, &enginetest.Log{})
		var refused *spool.StartError
		if !errors.As(err, &refused) || refused.Reason != engine.StartUnsupported || refused.Hint == "" {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

// wantNotice checks that the log holds the one notice, before exited.
func wantNotice(t *testing.T, log *enginetest.Log, code string) {
	t.Helper()
	if got := log.Notices(t); !slices.Equal(got, []string{code}) {
		t.Errorf("notices are %q, want %q", got, code)
	}
	for _, e := range log.All(t) {
		switch e.Kind {
		case spool.KindNotice:
			return
		case spool.KindExited:
			t.Errorf("exited comes before the notice:\n%s", log.Dump(t))
		}
	}
}

func TestTruncateKeepsHeadAndTail(t *testing.T) {
	e := open(t, Options{})
	var all bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&all, "%d\n", i+1)
	}
	for _, limit := range []int{1, 2, 1000, 4096, 100_000, all.Len() - 1} {
		spec := shell("seq 20000")
		spec.Limits = spool.Limits{OutputBytes: int64(limit), OutputPolicy: "truncate"}
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got != (spool.Outcome{Kind: spool.Exited}) {
			t.Errorf("outcome is %v", got)
		}
		tail := limit / 2
		head := limit - tail
		want := append(bytes.Clone(all.Bytes()[:head]), all.Bytes()[all.Len()-tail:]...)
		if got := log.Output(t, spool.Stdout); !bytes.Equal(got, want) {
			t.Errorf("limit %d: output of %d bytes is not the first %d and the last %d", limit, len(got), head, tail)
		}
		wantTruncation(t, log, spool.Truncation{
			DroppedBytes: map[spool.Stream]int64{spool.Stdout: int64(all.Len() - limit)}, LimitBytes: int64(limit),
		})
		wantNotice(t, log, NoticeOutputLimit)
		// Head, truncated, tail, exited.
		var kinds []spool.Kind
		for _, e := range log.All(t) {
			if e.Kind != spool.KindNotice && (len(kinds) == 0 || kinds[len(kinds)-1] != e.Kind) {
				kinds = append(kinds, e.Kind)
			}
		}
		want2 := []spool.Kind{spool.KindOutput, spool.KindTruncated, spool.KindOutput, spool.KindExited}
		if tail == 0 {
			want2 = slices.Delete(want2, 2, 3)
		}
		if d := cmp.Diff(want2, kinds); d != "" {
			t.Errorf("limit %d: order (-want +got):\n%s", limit, d)
		}
	}
}

func wantTruncation(t *testing.T, log *enginetest.Log, want spool.Truncation) {
	t.Helper()
	var got []spool.Truncation
	for _, e := range log.All(t) {
		if e.Kind == spool.KindTruncated {
			got = append(got, enginetest.Data[spool.Truncation](t, e))
		}
	}
	if d := cmp.Diff([]spool.Truncation{want}, got); d != "" {
		t.Errorf("truncation (-want +got):\n%s", d)
	}
}

func TestOutputAtTheLimitIsWhole(t *testing.T) {
	e := open(t, Options{})
	for _, policy := range []string{"truncate", "block", "stop"} {
		spec := shell("printf 0123456789")
		spec.Limits = spool.Limits{OutputBytes: 10, OutputPolicy: policy}
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got.Code != 0 {
			t.Errorf("%s: outcome is %v", policy, got)
		}
		if got := string(log.Output(t, spool.Stdout)); got != "0123456789" {
			t.Errorf("%s: output is %q", policy, got)
		}
		for _, e := range log.All(t) {
			if e.Kind != spool.KindOutput && e.Kind != spool.KindExited {
				t.Errorf("%s: the log is\n%s", policy, log.Dump(t))
			}
		}
	}
}

func TestTruncateKeepsStreamsApart(t *testing.T) {
	e := open(t, Options{})
	dir := t.TempDir()
	spec := shell("cd " + dir + "; printf aaaaaaaaaa; printf bbbbb >&2; : > 0; read x; printf cccc >&2; : > 1; read x; printf dd; : > 2; read x; printf eee >&2")
	spec.Stdin = true
	spec.Limits = spool.Limits{OutputBytes: 16}
	s, log := start(t, e, spec)
	for step := range 3 {
		// What is held back shows in no event, so look into the pipes.
		polltest.Until(t, "read", func() bool {
			_, err := os.Stat(filepath.Join(dir, strconv.Itoa(step)))
			return err == nil && drained(t, s.Pid(), 1) && drained(t, s.Pid(), 2)
		})
		if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Wait(t, s)
	out, errs := string(log.Output(t, spool.Stdout)), string(log.Output(t, spool.Stderr))
	if total := len(out) + len(errs); total != 16 {
		t.Errorf("%d bytes are logged: %q and %q", total, out, errs)
	}
	if !strings.HasSuffix(out, "dd") || !strings.HasSuffix(errs, "eee") {
		t.Errorf("output is %q and %q", out, errs)
	}
	var dropped int64
	for _, e := range log.All(t) {
		if e.Kind == spool.KindTruncated {
			tr := enginetest.Data[spool.Truncation](t, e)
			if int64(len(out))+tr.DroppedBytes[spool.Stdout] != 12 || int64(len(errs))+tr.DroppedBytes[spool.Stderr] != 12 {
				t.Errorf("dropped %v of %q and %q", tr.DroppedBytes, out, errs)
			}
			dropped = tr.DroppedBytes[spool.Stdout] + tr.DroppedBytes[spool.Stderr]
		}
	}
	if dropped != 8 {
		t.Errorf("%d bytes were dropped", dropped)
	}
}

// drained reports whether a pipe that a process writes to is empty.
func drained(t *testing.T, pid, fd int) bool {
	t.Helper()
	f, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f)
	n, err := unix.IoctlGetInt(f, unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n == 0
}

func TestBlockStopsReading(t *testing.T) {
	e := open(t, Options{})
	const limit = 200_000
	spec := shell("exec head -c 10000000 /dev/zero")
	spec.Limits = spool.Limits{OutputBytes: limit, OutputPolicy: "block"}
	s, log := start(t, e, spec)
	log.Until(t, "notice", func(e spool.Event) bool { return e.Kind == spool.KindNotice })
	if got := len(log.Output(t, spool.Stdout)); got != limit {
		t.Errorf("%d bytes are logged, want %d", got, limit)
	}
	control(t, s, spool.Control{Op: spool.ControlSignal, Signal: "TERM"})
	if got := enginetest.Wait(t, s); got.Signal != "SIGTERM" {
		t.Errorf("outcome is %v", got)
	}
	if got := len(log.Output(t, spool.Stdout)) + len(log.Output(t, spool.Stderr)); got != limit {
		t.Errorf("%d bytes are logged, want %d", got, limit)
	}
	wantNotice(t, log, NoticeOutputLimit)
	// What was in the pipe is announced, and comes to an end before exited.
	events := log.All(t)
	if k := events[len(events)-1].Kind; k != spool.KindExited {
		t.Errorf("the last event is %s", k)
	}
	if k := events[len(events)-2].Kind; k != spool.KindTruncated {
		t.Errorf("the last event but one is %s", k)
	}
}

func TestStopPolicyEndsRun(t *testing.T) {
	e := open(t, Options{})
	const limit = 100_001
	spec := shell("setsid sleep 1000 & while :; do head -c 1000000 /dev/zero; done")
	spec.Limits = spool.Limits{OutputBytes: limit, OutputPolicy: "stop"}
	s, log := start(t, e, spec)
	if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
		t.Errorf("outcome is %v", got)
	}
	if got := len(log.Output(t, spool.Stdout)); got != limit {
		t.Errorf("%d bytes are logged, want %d", got, limit)
	}
	if got := log.Notices(t); len(got) == 0 || got[0] != NoticeOutputLimit {
		t.Errorf("notices are %q", got)
	}
}

// What ran out is said, with what to do.
func TestStartWithoutRoom(t *testing.T) {
	e := open(t, Options{})
	for errno, hint := range map[syscall.Errno]string{
		syscall.EAGAIN: "too many processes",
		syscall.EMFILE: "too many open files",
		syscall.ENOMEM: "out of memory",
	} {
		disable := failpoint.Enable("launch.fork", 0, failpoint.Fail(errno))
		_, err := e.Start(t.Context(), shell("true"), enginetest.NewLog())
		disable()
		var refused *spool.StartError
		if !errors.As(err, &refused) || refused.Reason != engine.StartLimit || !errors.Is(err, errno) || !strings.Contains(refused.Hint, hint) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	s, _ := start(t, e, shell("exit 3"))
	enginetest.Wait(t, s)
}
