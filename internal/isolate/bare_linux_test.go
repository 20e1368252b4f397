//go:build amd64 || arm64

package isolate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// newTree makes a directory with files, each with its name in it.
func newTree(t *testing.T, names ...string) string {
	t.Helper()
	dir := resolved(t, t.TempDir())
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// inSandboxes runs lines, each of which must succeed, in every sandbox of namespaces that
// this machine has.
func inSandboxes(t *testing.T, i spool.Isolation, cwd string, lines ...string) {
	t.Helper()
	for _, w := range walls() {
		if w.mechanism != Namespaces {
			continue
		}
		p, err := NewPolicy(&i, cwd)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.resolve(); err != nil {
			t.Fatal(err)
		}
		in, err := w.enclose(p, nil)
		if err != nil {
			skiptest.Missing(t, "%s: %v", w.name(), err)
		}
		lease := &Lease{wall: w, in: in, policy: p}
		for _, line := range lines {
			if code := shell(t, lease, p.Cwd, line); code != 0 {
				t.Errorf("%s: %s: exit code %d", w.name(), line, code)
			}
		}
		lease.Release()
	}
}

// system are the paths of the programs that the tests use.
func system() (list []string) {
	for _, path := range []string{"/bin", "/usr", "/lib", "/lib64"} {
		if _, err := os.Lstat(path); err == nil {
			list = append(list, path)
		}
	}
	return list
}

// checkBare checks that a bare tree has nothing but what is named.
func checkBare(t *testing.T) {
	dir := newTree(t, "ws/f", "ws/sub/x", "open/o", "secret/s", "alone/a", "alone/b")
	if err := os.Symlink("open", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	i := spool.Isolation{Profile: string(WorkspaceWrite), Guarantees: []string{"R"}, Bare: true, HostTmp: true, Writable: []string{filepath.Join(dir, "ws")},
		Protected: []string{"sub"}, Readable: append(system(), filepath.Join(dir, "link"), filepath.Join(dir, "alone/a"), filepath.Join(dir, "missing"))}
	inSandboxes(t, i, filepath.Join(dir, "ws"),
		`test "$(cat f ../link/o ../open/o ../alone/a)" = ws/fopen/oopen/oalone/a`,
		`test "$(echo $(ls ..))" = "alone link open ws" && test "$(ls ../alone)" = a`,
		"test ! -e ../secret && test ! -e ../secret/s && test ! -e ../alone/b && test ! -e /etc && test ! -e /home && test ! -e /sys",
		"echo x >new && rm new && ! echo x >../open/new && ! echo x >../new && ! mkdir /new && ! echo x >sub/x",
		"test -e /dev/null && echo x >/dev/null && test -d /proc/self && ! cat /proc/1/root/etc/passwd")
}

// TestBareTree looks at a bare tree.
func TestBareTree(t *testing.T) { checkBare(t) }

// TestBareTreeUnprivileged does the same as a user without any rights.
func TestBareTreeUnprivileged(t *testing.T) {
	if unprivileged(t) {
		checkBare(t)
	}
}

// TestBareTreeWithoutAnything starts nothing: there is no program.
func TestBareTreeWithoutAnything(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	defer m.Close()
	lease, err := m.Prepare(&spool.Isolation{Profile: string(ReadOnly), Guarantees: []string{"R"}, Bare: true, HostTmp: true}, "/", 64, "")
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	defer lease.Release()
	if lease.Sees("/bin") || lease.Sees("/etc/passwd") {
		t.Error("the run sees programs")
	}
	if pid, err := lease.Fork("/bin/sh", []string{"sh"}, attributes(t)); err == nil {
		t.Errorf("process %d was started", pid)
	}
}

// TestHiddenPathsLeadToWritableOnes checks that a writable path below a hidden one can
// be reached, and that nothing else there can.
func TestHiddenPathsLeadToWritableOnes(t *testing.T) {
	dir := newTree(t, "hidden/h", "hidden/open/o", "hidden/ws/f", "hidden/ws/keys/k", "hidden/ws/sub/x")
	i := spool.Isolation{Profile: string(WorkspaceWrite), HostTmp: true, Writable: []string{filepath.Join(dir, "hidden/ws")},
		Protected: []string{"sub", "keys/k"}, Hidden: []string{filepath.Join(dir, "hidden"), filepath.Join(dir, "hidden/ws/keys")}}
	inSandboxes(t, i, filepath.Join(dir, "hidden/ws"),
		`test "$(cat f sub/x)" = hidden/ws/fhidden/ws/sub/x && echo x >new && rm new && ! echo x >sub/x`,
		"! ls .. && ! cat ../h && ! cat ../open/o && ! mkdir ../new && ! rm -r ../open",
		"! cat keys/k && ! ls keys && ! mv keys other")
}

// TestWholeTreeIsWritable checks that a run can write everywhere but to protected and
// hidden paths and settings of the kernel.
func TestWholeTreeIsWritable(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	defer m.Close()
	dir := newTree(t, "ws/f", "other/o", "kept/k", "hidden/h")
	request := &spool.Isolation{Profile: string(WorkspaceWrite), HostTmp: true, Writable: []string{"/"},
		Protected: []string{filepath.Join(dir, "kept")}, Hidden: []string{filepath.Join(dir, "hidden")}}
	lease, err := m.Prepare(request, filepath.Join(dir, "ws"), 64, "")
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	defer lease.Release()
	for _, line := range []string{
		"echo x >f && echo x >../other/o && mkdir ../new",
		"cat ../kept/k && ! echo x >../kept/k && ! mv ../kept ../other/kept",
		"! cat ../hidden/h && ! ls ../hidden",
		"! echo x >/proc/sys/kernel/hostname && ! mkdir /sys/fs/cgroup/spool-test",
	} {
		if code := shell(t, lease, filepath.Join(dir, "ws"), line); code != 0 {
			t.Errorf("%s: exit code %d", line, code)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "other/o")); err != nil || string(b) != "x\n" {
		t.Errorf("what the run wrote: %q, %v", b, err)
	}
	request.Mechanism = Landlock
	if os.Geteuid() == 0 {
		if _, err := m.Prepare(request, dir, 64, ""); err == nil || !strings.Contains(err.Error(), "root could change settings of the kernel") {
			t.Errorf("with Landlock: %v", err)
		}
	}
	for _, i := range []spool.Isolation{
		{Profile: string(WorkspaceWrite), Hidden: []string{"/"}},
		{Profile: string(WorkspaceWrite), Writable: []string{"/"}, Protected: []string{"/"}},
		{Profile: string(ReadOnly), Guarantees: []string{"R"}, Bare: true, Readable: []string{"/"}},
		{Profile: string(WorkspaceWrite), Guarantees: []string{"R"}, Bare: true, Writable: []string{"/"}},
	} {
		if _, err := m.Prepare(&i, dir, 64, ""); err == nil || !strings.Contains(err.Error(), "/ cannot be") {
			t.Errorf("%+v: %v", i, err)
		}
	}
}
