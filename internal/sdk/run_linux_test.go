package sdk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// shared is a directory of all tests.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "sdk"); err != nil {
		panic(err)
	}
	code := servertest.Main(m)
	_ = os.RemoveAll(shared)
	os.Exit(code)
}

// machine is the name of this kind of processor in packages.
var machine = map[string]struct{ python, node string }{
	"amd64": {"x86_64", "x64"},
	"arm64": {"aarch64", "arm64"},
}[runtime.GOARCH]

// run runs a program and fails the test if it does not succeed.
func run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// absolute returns a path from the root.
func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// withoutSpool is a PATH without the spool program, so that a package must bring its
// own.
const withoutSpool = "PATH=/usr/local/bin:/usr/bin:/bin"

// stopServer ends the server that an SDK started for a state directory.
func stopServer(t *testing.T, state string) {
	t.Helper()
	polltest.Until(t, "the end of the server", func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			line, err := os.ReadFile(f)
			if err != nil || !bytes.Contains(line, []byte("\x00serve\x00--state\x00"+state+"\x00")) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				found = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		return !found
	})
}
