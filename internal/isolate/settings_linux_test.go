//go:build amd64 || arm64

package isolate

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/skiptest"
)

// inside is set in a test that runs again in another setting.
const inside = "SPOOL_TEST_SETTING"

// again runs a test again in a child that start starts, in another setting. It
// reports whether this process is that child.
func again(t *testing.T, setting string, prepare func(*exec.Cmd), start func(*exec.Cmd) error) bool {
	t.Helper()
	if os.Getenv(inside) == setting {
		return true
	}
	home := t.TempDir()
	// The parents of a test's directory are closed to other users.
	for dir := home; strings.HasPrefix(dir, os.TempDir()+"/"); dir = dir[:strings.LastIndexByte(dir, '/')] {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// So is that of the test's program.
	program := filepath.Join(home, "program")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("cp", exe, program).Run(); err != nil {
		t.Fatalf("copy the test: %v", err)
	}
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), inside+"="+setting, "HOME="+home, "XDG_CACHE_HOME="+home, "TMPDIR=")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if prepare != nil {
		prepare(cmd)
		if err := os.Chown(home, int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS") {
		t.Errorf("%s: %v\n%s", setting, err, out.String())
	}
	return false
}

// unprivileged runs a test again as a user without any rights. It reports whether
// this process has that user.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == "" && os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can become another user; the other tests run as this one")
	}
	user := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return again(t, "unprivileged", user, (*exec.Cmd).Start)
}

// TestUnprivileged makes the attempts as a user without any rights.
func TestUnprivileged(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	l := newLauncher(t, launch.TreeAuto)
	p := test(t.Context(), l, wall{mechanism: Namespaces})
	if p.Err != nil {
		skiptest.Missing(t, "%v", p.Err)
	}
	if lacks := Offline.Guarantees().With(Proxied, Rootless, Reads).Without(p.Has); len(lacks) > 0 {
		t.Errorf("lacks %s: %v", lacks, p.Why)
	}
}

// TestContainer makes the attempts where namespaces are refused, as Docker does.
func TestContainer(t *testing.T) {
	if !again(t, "container", nil, startFiltered) {
		return
	}
	l := newLauncher(t, launch.TreeWalk)
	m := New(l)
	defer m.Close()
	dir := t.TempDir()
	_, err := m.Prepare(&spool.Isolation{Profile: string(Offline)}, dir, 64, "")
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("error %v, want a refusal", err)
	}
	for _, text := range []string{"isolation_unavailable: profile \"no-network\"", "namespaces: clone: operation not permitted", "landlock: "} {
		if !strings.Contains(refusal.Error(), text) {
			t.Errorf("the refusal does not say %q: %v", text, refusal)
		}
	}
	if hint := refusal.Hint(); !strings.Contains(hint, "in a container, allow namespaces") || !strings.Contains(hint, "--waive I") || !strings.Contains(hint, "--waive S") {
		t.Errorf("hint %q", hint)
	}
	if _, err := m.Prepare(&spool.Isolation{Profile: string(Offline), Waive: []string{"I", "S", "K", "T"}, Protected: []string{".git"}}, dir, 64, ""); !errors.As(err, &refusal) || !refusal.Missing.Has(Protects) {
		t.Errorf("a protected path: %v, want a refusal of P", err)
	}
	if landlockABI() < abiTruncate {
		skiptest.Missing(t, "the kernel has no Landlock")
	}
	lease, err := m.Prepare(&spool.Isolation{Profile: string(Offline), Waive: []string{"I", "S", "K", "T"}}, dir, 64, "")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if i := lease.Isolation(); i.Mechanism != Landlock || len(i.Waive) != 4 {
		t.Errorf("isolation %+v", i)
	}
	p := test(t.Context(), l, wall{mechanism: Landlock})
	if lacks := NewSet(Writes, NoNetwork).Without(p.Has); p.Err != nil || len(lacks) > 0 {
		t.Errorf("lacks %s: %v, %v", lacks, p.Why, p.Err)
	}
	for _, g := range []Guarantee{Kills, Survives, Apart} {
		if p.Has.Has(g) {
			t.Errorf("it claims %s", g)
		}
	}
}

// startFiltered starts a command that may not make namespaces.
func startFiltered(cmd *exec.Cmd) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f := seccomp.New()
		f.OnArg(unix.SYS_CLONE, 0, seccomp.Allow, seccomp.AnyBit(newNamespaces, seccomp.Errno(unix.EPERM)))
		f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3)
		f.On(seccomp.Errno(unix.EPERM), unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT)
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = f.Program(seccomp.Allow).Install()
		}
		if err == nil {
			err = cmd.Start()
		}
		result <- err
	}()
	return <-result
}
