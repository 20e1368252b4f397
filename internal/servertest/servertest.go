// Package servertest runs the real spool binary as a server, for tests that
// need separate processes: build it once, start it, kill it, start it again on
// the same state.
package servertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/tether"
)

var buildDir string // removed by Main; empty if the binary was not built

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spool-test-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	bin := filepath.Join(dir, "spool")
	last := lastBuild()
	// Go does not link a program again that is there and up to date.
	if copyFile(last, bin) != nil {
		_ = os.Remove(bin) // a part of it
	}
	before := modified(bin)
	cmd := exec.Command("go", "build", "-o", bin, "github.com/spool-run/spool/cmd/spool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in a release
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build spool: %w: %s", err, out)
	}
	if modified(bin) != before {
		keepBuild(bin, last)
	}
	return bin, nil
})

// lastBuild is where a test leaves the binary for the next one, in another process.
// It is empty if there is no place for it.
func lastBuild() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "spool-test", "bin", "spool")
}

// keepBuild leaves the binary for other tests. Without it they build their own.
func keepBuild(bin, last string) {
	if last == "" || os.MkdirAll(filepath.Dir(last), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(last), "spool-")
	if err != nil {
		return
	}
	// Others see the whole file or none.
	if errors.Join(f.Close(), copyFile(bin, f.Name())) != nil || os.Rename(f.Name(), last) != nil {
		_ = os.Remove(f.Name())
	}
}

// copyFile copies a program.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, b, 0o755), os.Chmod(to, 0o755))
}

// modified returns when a file was written, zero if it is not there.
func modified(name string) time.Time {
	fi, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// Main runs the tests and removes the built binary.
func Main(m interface{ Run() int }) int {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	return code
}

// Build returns the spool binary built from this tree, for callers without a
// test. It is built without the race detector, which would slow it down.
func Build() (string, error) { return build() }

// Binary returns the spool binary built from this tree.
func Binary(tb testing.TB) string {
	tb.Helper()
	bin, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// Server is a running spool exec-server.
type Server struct {
	URL string
	Pid int

	cmd  *exec.Cmd
	dead bool
}

// Start starts a server on a state directory. The end of the test kills the
// server, its keepers and their runs.
func Start(tb testing.TB, state string, args ...string) *Server {
	tb.Helper()
	s, err := StartCommand(context.Background(), Binary(tb), append([]string{"exec-server", "--state", state}, args...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Kill()
		EndKeepers(tb, state)
	})
	return s
}

// EndKeepers ends the keepers of a state directory, and of those below it, and
// waits until they and their runs have ended. It includes keepers that are just
// starting.
func EndKeepers(tb testing.TB, state string) {
	tb.Helper()
	polltest.Until(tb, "the end of the keepers", func() bool {
		pids := keepers(tb, state)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		return len(pids) == 0
	})
}

// StateDir returns a temporary state directory. The end of the test ends its
// keepers, which would write to it while it is removed.
func StateDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	tb.Cleanup(func() { EndKeepers(tb, dir) })
	return dir
}

// keepers returns the pids of the keepers of a directory and of those below it.
func keepers(tb testing.TB, state string) []int {
	tb.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	var pids []int
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		_, of, ok := bytes.Cut(line, []byte("\x00keeper-role\x00-state\x00"))
		if dir, _, _ := bytes.Cut(of, []byte{0}); !ok || !bytes.HasPrefix(append(dir[:len(dir):len(dir)], '/'), []byte(state+"/")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// StartCommand starts a command that prints its URL as its first line.
func StartCommand(ctx context.Context, bin string, args ...string) (*Server, error) {
	s := &Server{cmd: exec.CommandContext(ctx, bin, args...)}
	s.cmd.Stderr = os.Stderr
	// A test that dies must not leave servers behind.
	s.cmd.SysProcAttr = tether.Attr(syscall.SIGTERM)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server printed no URL: %w", err), s.cmd.Process.Kill(), s.cmd.Wait())
	}
	s.URL, s.Pid = strings.TrimSpace(line), s.cmd.Process.Pid
	return s, nil
}

// Kill kills the server with SIGKILL and waits until it has ended.
func (s *Server) Kill() {
	if !s.dead {
		s.dead = true
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// Stop sends SIGTERM to the server and returns its exit error.
func (s *Server) Stop() error {
	s.dead = true
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}
