package torture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/internal/host"
)

// server is the Spool server under torture.
type server struct {
	binaries []string // the current binary and its replacements
	state    string
	addr     string
	log      *os.File
	args     []string
	died     func(err error) // called when the server ends by itself

	mu       sync.Mutex
	which    int
	process  *serverProcess // nil before the first start
	restarts []time.Duration
}

// serverProcess is one process of the server.
type serverProcess struct {
	cmd    *exec.Cmd
	gone   chan struct{} // closed when it was reaped
	killed atomic.Bool   // by the torture
}

// freeAddr returns an unused loopback address below the ephemeral ports: it
// must stay free during a restart.
func freeAddr(seed uint64) (string, error) {
	for i := range uint64(1000) {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+(seed*7919+uint64(os.Getpid())*31+i*101)%15000)
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, ln.Close()
		}
	}
	return "", errors.New("no free loopback port")
}

// start starts the server and waits until it listens.
func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked()
}

func (s *server) startLocked() error {
	began := time.Now()
	args := append([]string{"exec-server", "--state", s.state, "--listen", "ws://" + s.addr}, s.args...)
	cmd := exec.Command(s.binaries[s.which], args...)
	cmd.Stderr = s.log
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("start server: the server printed no URL: %w", errors.Join(err, cmd.Wait(), s.stderrTail()))
	}
	if got := strings.TrimSpace(line); got != "ws://"+s.addr {
		_ = cmd.Process.Kill()
		return fmt.Errorf("start server: the server listens on %q: %w", got, cmd.Wait())
	}
	s.process = &serverProcess{cmd: cmd, gone: make(chan struct{})}
	s.restarts = append(s.restarts, time.Since(began))
	go s.reap(s.process)
	return nil
}

// reap waits for the end of the server and reports an end that the torture did
// not cause.
func (s *server) reap(l *serverProcess) {
	_ = l.cmd.Wait() // ProcessState is used instead
	close(l.gone)
	if !l.killed.Load() {
		s.died(errors.Join(fmt.Errorf("the server ended: %v", l.cmd.ProcessState), s.stderrTail()))
	}
}

// stderrTail returns the end of the server's stderr as an error.
func (s *server) stderrTail() error {
	const enough = 4096
	fi, err := s.log.Stat()
	if err != nil || fi.Size() == 0 {
		return nil
	}
	b := make([]byte, min(fi.Size(), enough))
	if _, err := s.log.ReadAt(b, fi.Size()-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("stderr: %s", b)
}

// kill kills the server with SIGKILL.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

func (s *server) killLocked() {
	if s.process == nil {
		return
	}
	s.process.killed.Store(true)
	_ = s.process.cmd.Process.Kill() // it may have ended
	<-s.process.gone
}

// restart kills the server and starts it again, from the next binary for an
// upgrade.
func (s *server) restart(upgrade bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
	if upgrade {
		s.which = (s.which + 1) % len(s.binaries)
	}
	return s.startLocked()
}

func (s *server) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// keepers returns the pids of the keepers, if the server has any.
func (s *server) keepers() []int {
	owners, err := host.Owners(s.state)
	if err != nil {
		return nil
	}
	var pids []int
	for _, o := range owners {
		if o.Pid != s.pid() {
			pids = append(pids, o.Pid)
		}
	}
	return pids
}

// keeperEnd is how long a killed keeper may take to end.
const keeperEnd = 30 * time.Second

// endKeepers kills the keepers of a state directory, whose server is gone, and waits
// for their end: until then they may write to the directory.
func endKeepers(state string) {
	for end := time.Now().Add(keeperEnd); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the kernel does not report the end of another process's child
		pids := keeperProcesses(state)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = killProcess(pid) // it may be exiting
		}
	}
}

// copyBinary makes a copy of the binary with a few extra bytes at its end: it
// has another build id and the same behaviour.
func copyBinary(from, dir string) (path string, err error) {
	path = filepath.Join(dir, "other", filepath.Base(from))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("copy binary: %w", err)
	}
	src, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("copy binary: %w", err)
	}
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", fmt.Errorf("copy binary: %w", err)
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		_, err = dst.WriteString("\nother\n")
	}
	if err := errors.Join(err, dst.Close()); err != nil {
		return "", fmt.Errorf("copy binary: %w", err)
	}
	return path, nil
}
