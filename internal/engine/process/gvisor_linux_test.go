package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/skiptest"
)

// inGVisor is an isolation in gVisor, whatever else this machine has.
var inGVisor = spool.Isolation{Profile: "no-network", Protected: []string{".git"}, Mechanism: "gvisor"}

// TestGVisorConformance runs cases of the suite of engines in gVisor, where the output,
// the input, the signals and the ends of programs take other ways. The rest of the suite
// is about what is the same without gVisor.
func TestGVisorConformance(t *testing.T) {
	gvisortest.Use(t)
	needs(t, open(t, Options{}), inGVisor)
	s := subject(Options{})
	s.Open = func(t *testing.T) engine.Engine { return &isolating{open(t, Options{}), inGVisor, t.TempDir()} }
	s.Only = []string{
		"argv/starts_and_exits", "argv/streams_output", "argv/writes_then_reads_pipe", "argv/writes_then_reads_pty",
		"argv/passes_argv_exactly", "argv/environment_is_exact", "argv/runs_in_cwd", "argv/interrupts", "argv/resizes_terminal",
		"argv/stop_kills_after_grace", "argv/late_output_follows_exited", "argv/bytes_are_exact", "argv/start_errors_are_typed",
	}
	enginetest.Run(t, s)
}

// TestGVisorSignals checks that a program can end by signals, also those that the Go
// runtime treats in its own way.
func TestGVisorSignals(t *testing.T) {
	gvisortest.Use(t)
	e := open(t, Options{})
	needs(t, e, inGVisor)
	for _, sig := range []unix.Signal{unix.SIGPIPE, unix.SIGSEGV, unix.SIGKILL} {
		i := inGVisor
		spec := shell("kill -" + strconv.Itoa(int(sig)) + " $$")
		spec.Cwd, spec.Isolation = t.TempDir(), &i
		s, _ := start(t, e, spec)
		if got := enginetest.Wait(t, s); got.Code != 128+int(sig) || got.Signal != unix.SignalName(sig) {
			t.Errorf("after %s: %v", unix.SignalName(sig), got)
		}
	}
}

// TestGVisorKillLeavesNothing kills programs that leave their session and lose their
// parent, and waits for the end of every process of gVisor.
func TestGVisorKillLeavesNothing(t *testing.T) {
	gvisortest.Use(t)
	e := open(t, Options{})
	needs(t, e, inGVisor)
	for range 2 {
		i := inGVisor
		spec := shell(`for i in 1 2 3 4; do (setsid sh -c 'echo up; while :; do sleep 1000; done' &) ; done; sleep 1000`)
		spec.Cwd, spec.Isolation = t.TempDir(), &i
		s, log := start(t, e, spec)
		log.Until(t, "four processes", func(spool.Event) bool { return strings.Count(string(log.Output(t, spool.Stdout)), "up") == 4 })
		watched := watch(t, s.(*session).Pid())
		for _, name := range []string{"runsc-gofer", "runsc-sandbox"} {
			if !slices.ContainsFunc(watched, func(p process) bool { return p.name == name }) {
				t.Errorf("no process %s among %v", name, watched)
			}
		}
		control(t, s, spool.Control{Op: spool.ControlKill})
		if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
			t.Errorf("outcome %v", got)
		}
		if n := log.Notices(t); slices.Contains(n, NoticeStreamsHeld) || slices.Contains(n, NoticeKillFailed) {
			t.Errorf("notices %q", n)
		}
		for _, p := range watched {
			p.awaitEnd(t)
		}
	}
}

// process is one that is watched, whose number may be used again.
type process struct {
	name string
	fd   int
}

// watch watches a process and all that descend from it.
func watch(t *testing.T, pid int) []process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	argv, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty if it has ended
	name, _, _ := strings.Cut(string(argv), "\x00")
	list := []process{{name, fd}}
	tasks, _ := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	for _, file := range tasks {
		b, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, watch(t, n)...)
		}
	}
	return list
}

func (p process) awaitEnd(t *testing.T) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 60_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Errorf("%s is left: %v", p.name, err)
		}
		return
	}
}

// TestStrictGVisor checks that a strict run has all guarantees in gVisor: it reads only
// what is listed, writes only its directory, and ends as a whole above its memory.
func TestStrictGVisor(t *testing.T) {
	gvisortest.Use(t)
	e := open(t, Options{})
	const memory = 256 << 20
	if err := e.launcher.TryLimits(memory, 2); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	dir, listed := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(listed, "file"), []byte("listed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := shell("cat " + listed + "/file; cat /etc/shadow; echo mine > file && cat file; echo no > .git/new; echo no > " + listed + "/new; ls /root; id -u; uname -r; exec tail /dev/zero")
	spec.Cwd, spec.Limits.MemoryBytes, spec.Limits.CPUs = dir, memory, 2
	spec.Isolation = &spool.Isolation{Profile: "strict", Readable: []string{listed}, Protected: []string{".git"}}
	s, log := start(t, e, spec)
	if got := enginetest.Wait(t, s); got.Reason != "ran out of memory (limit 256 MiB)" {
		t.Errorf("outcome %v", got)
	}
	if got := string(log.Output(t, spool.Stdout)); !strings.HasPrefix(got, "listed\nmine\n0\n") || !strings.Contains(got, "gvisor") {
		t.Errorf("the run said\n%s", log.Dump(t))
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "mine\n" {
		t.Errorf("the file of the run: %q, %v", b, err)
	}
	for _, file := range []string{filepath.Join(listed, "new"), filepath.Join(dir, ".git", "new")} {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was written: %v", file, err)
		}
	}
	has := s.(engine.Isolated).Isolation()
	if got := strings.Join(has.Guarantees, " "); has.Mechanism != "gvisor" || got != "W P R N0 I K S M C T U H" {
		t.Errorf("mechanism %s, guarantees %s", has.Mechanism, got)
	}

	// In a bare tree there is nothing else.
	spec = shell("ls " + filepath.Dir(listed) + "; ulimit -n; uname -r")
	spec.Cwd, spec.Limits.OpenFiles = dir, 128
	spec.Isolation = &spool.Isolation{Profile: "no-network", Guarantees: []string{"R", "H"}, Bare: true, Readable: []string{"/bin", "/lib", "/lib64", "/usr", listed}, Writable: []string{dir}}
	s, log = start(t, e, spec)
	if got := enginetest.Wait(t, s); got.Code != 0 {
		t.Errorf("outcome %v", got)
	}
	want := filepath.Base(dir) + "\n" + filepath.Base(listed) + "\n128\n"
	if got := string(log.Output(t, spool.Stdout)); !strings.HasPrefix(got, want) || !strings.Contains(got, "gvisor") {
		t.Errorf("the run in a bare tree said\n%s", log.Dump(t))
	}

	// What needs no other kernel does not get one.
	spec = shell("true")
	spec.Cwd, spec.Isolation = dir, &spool.Isolation{Profile: "no-network"}
	s, _ = start(t, e, spec)
	if got := enginetest.Wait(t, s); got.Code != 0 || s.(engine.Isolated).Isolation().Mechanism != "namespaces" {
		t.Errorf("outcome %v by %s", got, s.(engine.Isolated).Isolation().Mechanism)
	}
}
