//go:build amd64 || arm64

package isolate

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/skiptest"
)

// newBox puts up a wall of namespaces for runs without a network in a directory.
func newBox(t *testing.T, w wall, dir string) *Lease {
	t.Helper()
	p, err := NewPolicy(&spool.Isolation{Profile: string(Offline)}, dir)
	if err == nil {
		err = p.resolve()
	}
	if err != nil {
		t.Fatal(err)
	}
	in, err := w.enclose(p, nil)
	if err != nil {
		skiptest.Missing(t, "%s: %v", w.name(), err)
	}
	t.Cleanup(in.close)
	return &Lease{wall: w, in: in, policy: p}
}

// boxes calls a function for every wall of namespaces of this machine.
func boxes(t *testing.T, f func(*testing.T, wall)) {
	for _, w := range walls() {
		if w.mechanism == Namespaces {
			t.Run(w.name(), func(t *testing.T) { f(t, w) })
		}
	}
}

// rightless exits with 0 if a process and the program that it executes have no
// capabilities, can gain none, and are filtered.
const rightless = `look() {
	while read name value; do
		case $name in
		CapInh:|CapPrm:|CapEff:|CapAmb:) [ "$value" = 0000000000000000 ] || exit 3;;
		NoNewPrivs:) [ "$value" = 1 ] || exit 4;;
		Seccomp:) [ "$value" = 2 ] || exit 5;;
		esac
	done </proc/self/status
}
look
[ "$again" ] || again=1 exec sh -c "$line"`

// TestNoCapabilities starts programs in sandboxes, where the user is root in some, and
// where they install the filter by themselves or inherit it.
func TestNoCapabilities(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		l := newBox(t, w, dir)
		for name, fork := range map[string]forkFunc{"by itself": l.Fork, "on the thread": l.forkThere} {
			if code := run(t, fork, dir, "line='"+rightless+"'; export line; eval \"$line\""); code != 0 {
				t.Errorf("a program that has the filter %s: exit code %d", name, code)
			}
		}
	})
}

// TestMountsGiveNoRights looks at all mounts of sandboxes: a program that a sandbox
// starts has capabilities until it executes a file, which must not leave it any. The
// devices are no programs.
func TestMountsGiveNoRights(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		const look = `n=0
while read id parent device root path options rest; do
	case ,$options, in *,nosuid,*) n=$((n+1));; *) case $path in /dev/*) ;; *) exit 3;; esac;; esac
done </proc/self/mountinfo
[ $n -gt 5 ]`
		if code := shell(t, newBox(t, w, dir), dir, look); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// TestNoCapabilitiesUnprivileged does the same as a user who cannot enter the PID
// namespace of a sandbox with a thread.
func TestNoCapabilitiesUnprivileged(t *testing.T) {
	if unprivileged(t) {
		TestNoCapabilities(t)
	}
}

// TestThreadLeavesThePIDNamespace checks that the thread which starts a program in a
// sandbox has its later children outside.
func TestThreadLeavesThePIDNamespace(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dir := t.TempDir()
		l := newBox(t, w, dir)
		for _, program := range []string{"/bin/true", "/nonexistent"} {
			pid, err := l.Fork(program, []string{"program"}, &syscall.ProcAttr{Env: []string{}, Dir: dir, Sys: &syscall.SysProcAttr{Setsid: true}})
			if (err == nil) != (program == "/bin/true") {
				t.Fatalf("%s: %v", program, err)
			}
			if err == nil {
				reap(pid)
			}
			own, err := os.Readlink("/proc/thread-self/ns/pid")
			if err != nil {
				t.Fatal(err)
			}
			if children, err := os.Readlink("/proc/thread-self/ns/pid_for_children"); err != nil || children != own {
				t.Errorf("after the start of %s children begin in %s, want %s: %v", program, children, own, err)
			}
		}
	})
}

// TestLaterMountsStayOutside mounts something in the workspace of a sandbox that is
// there: inside it would be writable in ways that the sandbox does not know.
func TestLaterMountsStayOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can mount")
	}
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		mount := func(at string) {
			t.Helper()
			if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
				skiptest.Missing(t, "mount: %v", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
		}
		mount(dir)
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
		later := filepath.Join(dir, "later")
		if err := os.Mkdir(later, 0o777); err != nil {
			t.Fatal(err)
		}
		l := newBox(t, w, dir)
		mount(later)
		if err := os.WriteFile(filepath.Join(later, "file"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if code := shell(t, l, dir, "test -d later && ! test -e later/file"); code != 0 {
			t.Errorf("exit code %d: the mount is in the sandbox", code)
		}
	})
}
