//go:build amd64 || arm64

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/seccomp/seccomptest"
	"github.com/spool-run/spool/internal/skiptest"
)

// testRole makes the test binary a program that tries one mechanism.
const testRole = "probe-test-role"

func TestMain(m *testing.M) {
	// At once: with os.Exit the race detector waits for a second.
	if len(os.Args) > 1 && os.Args[1] == Role {
		syscall.Exit(Work(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == testRole {
		syscall.Exit(tryOne(os.Args[2]))
	}
	leaktest.Main(m)
}

// probes are all, by name.
var probes = map[string]func(context.Context) error{
	"user":     func(ctx context.Context) error { return TryNamespace(ctx, User) },
	"mount":    func(ctx context.Context) error { return TryNamespace(ctx, Mount) },
	"pid":      func(ctx context.Context) error { return TryNamespace(ctx, PID) },
	"net":      func(ctx context.Context) error { return TryNamespace(ctx, Net) },
	"landlock": func(ctx context.Context) error { _, err := TryLandlock(ctx); return err },
	"seccomp":  TrySeccomp,
	"pidfd":    TryPidfd,
	"lock":     func(ctx context.Context) error { return TryLock(ctx, os.TempDir()) },
	"cgroup":   func(ctx context.Context) error { _, err := TryTrees(ctx, launch.TreeCgroup); return err },
	"walk":     func(ctx context.Context) error { _, err := TryTrees(ctx, launch.TreeWalk); return err },
}

// works says once whether a probe succeeds here.
var works = func() map[string]func() error {
	once := make(map[string]func() error)
	for name, try := range probes {
		once[name] = sync.OnceValue(func() error { return try(context.Background()) })
	}
	groups := sync.OnceValues(func() (Trees, error) { return TryTrees(context.Background(), launch.TreeCgroup) })
	for name, missing := range map[string]func(Trees) string{
		"cgroup":    func(Trees) string { return "" },
		"processes": func(t Trees) string { return t.NoProcessLimit },
		"memory":    func(t Trees) string { return t.NoMemoryLimit },
	} {
		once[name] = func() error {
			t, err := groups()
			if err == nil && missing(t) != "" {
				err = errors.New(missing(t))
			}
			return err
		}
	}
	return once
}()

// tryOne prints how a probe ends, as an answer.
func tryOne(name string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var a answer
	if err := probes[name](ctx); err != nil {
		a.Call, a.Text = "unknown", err.Error()
		var step *Error
		var errno syscall.Errno
		if errors.As(err, &step) {
			a.Call = step.Call
		}
		if errors.As(err, &errno) {
			a.Errno = int(errno)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}

// TestTry checks that every mechanism of this machine works.
func TestTry(t *testing.T) {
	for name, try := range works {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := try(); err != nil {
				skiptest.Missing(t, "not on this machine: %v", err)
			}
		})
	}
}

// TestTryNotices takes each mechanism away, or makes its call succeed without an
// effect, and checks that the probe notices, so that it must have tried.
func TestTryNotices(t *testing.T) {
	seccomptest.Need(t)
	const success = unix.Errno(0) // the call returns 0 and does nothing
	clone := func(flag uint32) func(*seccomp.Filter) {
		return func(f *seccomp.Filter) {
			f.OnArg(unix.SYS_CLONE, 0, seccomp.Allow, seccomp.AnyBit(flag, seccomp.Errno(unix.EPERM)))
		}
	}
	refuse := func(errno unix.Errno, calls ...uint32) func(*seccomp.Filter) {
		return func(f *seccomp.Filter) { f.On(seccomp.Errno(errno), calls...) }
	}
	for _, tt := range []struct {
		name, probe string
		filter      func(*seccomp.Filter)
		call, text  string // of the error
		errno       unix.Errno
	}{
		{"no user namespace", "user", clone(unix.CLONE_NEWUSER), "CLONE_NEWUSER", "", unix.EPERM},
		{"root of a user namespace without rights", "user", refuse(unix.EPERM, unix.SYS_SETHOSTNAME), "sethostname", "", unix.EPERM},
		{"no mount namespace", "mount", clone(unix.CLONE_NEWNS), "CLONE_NEWNS", "", unix.EPERM},
		{"no mounts in it", "mount", refuse(unix.EPERM, unix.SYS_MOUNT), "mount", "", unix.EPERM},
		{"no pid namespace", "pid", clone(unix.CLONE_NEWPID), "CLONE_NEWPID", "", unix.EPERM},
		{"no network namespace", "net", clone(unix.CLONE_NEWNET), "CLONE_NEWNET", "", unix.EPERM},
		{"no interface in it", "net", func(f *seccomp.Filter) {
			f.OnArg(unix.SYS_IOCTL, 1, seccomp.Allow, seccomp.Equal(unix.SIOCSIFFLAGS, seccomp.Errno(unix.EPERM)))
		}, "SIOCSIFFLAGS", "", unix.EPERM},
		{"no landlock", "landlock", refuse(unix.ENOSYS, unix.SYS_LANDLOCK_CREATE_RULESET), "landlock_create_ruleset", "", unix.ENOSYS},
		{"landlock without effect", "landlock", refuse(success, unix.SYS_LANDLOCK_RESTRICT_SELF), "read of a file outside", "no effect", 0},
		{"no seccomp", "seccomp", refuse(unix.EINVAL, unix.SYS_SECCOMP), "SECCOMP_SET_MODE_FILTER", "", unix.EINVAL},
		{"seccomp without effect", "seccomp", refuse(success, unix.SYS_SECCOMP), "filtered call", "no effect", 0},
		{"no pidfd", "pidfd", refuse(unix.ENOSYS, unix.SYS_PIDFD_OPEN), "pidfd_open", "", unix.ENOSYS},
		{"no signal by pidfd", "pidfd", refuse(unix.EPERM, unix.SYS_PIDFD_SEND_SIGNAL), "pidfd_send_signal", "", unix.EPERM},
		{"no locks", "lock", refuse(unix.ENOLCK, unix.SYS_FLOCK), "flock", "", unix.ENOLCK},
		{"locks without effect", "lock", refuse(success, unix.SYS_FLOCK), "flock", "two processes", 0},
		{"no clone into a control group", "cgroup", refuse(unix.ENOSYS, unix.SYS_CLONE3), "control group", "", unix.ENOSYS},
		{"no reaper of orphans", "walk", func(f *seccomp.Filter) {
			f.OnArg(unix.SYS_PRCTL, 0, seccomp.Allow, seccomp.Equal(unix.PR_SET_CHILD_SUBREAPER, seccomp.Errno(unix.EINVAL)))
		}, "reaper of orphans", "", unix.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := works[tt.probe](); err != nil {
				skiptest.Missing(t, "not on this machine: %v", err)
			}
			f := seccomp.New()
			tt.filter(f)
			cmd := exec.Command(os.Args[0], testRole, tt.probe)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			if err := seccomptest.Start(f.Program(seccomp.Allow), cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			var got answer
			if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
				t.Fatalf("%v: %q", err, out.String())
			}
			if !strings.Contains(got.Call, tt.call) || !strings.Contains(got.Text, tt.text) || tt.errno != 0 && got.Errno != int(tt.errno) || got.Call == "" {
				t.Errorf("found %+v, want a failure of %q with %v %s", got, tt.call, tt.errno, tt.text)
			}
		})
	}
}

// TestTryLeavesNothing checks that no file of a probe is left.
func TestTryLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, name := range []string{"mount", "landlock", "lock"} {
		_ = probes[name](t.Context()) // whether it works is for TestTry
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if hidden, _ := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("left: %q %q, %v", left, hidden, err)
	}
}

func TestWorkRefusesUnknownTasks(t *testing.T) {
	for _, args := range [][]string{nil, {"nonsense"}} {
		if code := Work(args); code != 2 {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

func TestErrorNamesTheStep(t *testing.T) {
	err := fmt.Errorf("try: %w", failed(unix.EPERM, "clone(%s)", "X"))
	if !errors.Is(err, unix.EPERM) || err.Error() != "try: clone(X): operation not permitted" {
		t.Error(err)
	}
}

// TestWaitEndsWithTheProbe checks that a child which waits to be killed ends when
// the probe does.
func TestWaitEndsWithTheProbe(t *testing.T) {
	cmd := command(t.Context(), "wait")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = r.Close() // as the system does for a probe that was killed
	_ = cmd.Wait()
	if cmd.ProcessState.Exited() || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGPIPE {
		return
	}
	t.Errorf("it ended as %v", cmd.ProcessState)
}
