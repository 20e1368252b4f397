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
	binaries []string // the one it runs, and those it can be replaced with
	state    string
	addr     string
	log      *os.File
	args     []string
	died     func(err error) // called when it ends of itself

	mu       sync.Mutex
	which    int
	life     *serverLife // nil before the first
	restarts []time.Duration
}

// serverLife is one process of the server.
type serverLife struct {
	cmd    *exec.Cmd
	gone   chan struct{} // closed when it was reaped
	killed atomic.Bool   // by us
}

// freeAddr returns an address of loopback that nobody uses, below the ports
// that the kernel gives to those who connect: it must stay free over a restart.
func freeAddr(seed uint64) (string, error) {
	for i := range uint64(1000) {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+(seed*7919+uint64(os.Getpid())*31+i*101)%15000)
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, ln.Close()
		}
	}
	return "", errors.New("no port of loopback is free")
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
	cmd.SysProcAttr = endWithUs()
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
		return fmt.Errorf("start server: it printed no URL: %w", errors.Join(err, cmd.Wait(), s.complaint()))
	}
	if got := strings.TrimSpace(line); got != "ws://"+s.addr {
		_ = cmd.Process.Kill()
		return fmt.Errorf("start server: it listens on %q: %w", got, cmd.Wait())
	}
	s.life = &serverLife{cmd: cmd, gone: make(chan struct{})}
	s.restarts = append(s.restarts, time.Since(began))
	go s.reap(s.life)
	return nil
}

// reap waits for the end of the server, and tells if we did not kill it.
func (s *server) reap(l *serverLife) {
	_ = l.cmd.Wait() // the state says more
	close(l.gone)
	if !l.killed.Load() {
		s.died(errors.Join(fmt.Errorf("the server ended: %v", l.cmd.ProcessState), s.complaint()))
	}
}

// complaint is the end of what the server said.
func (s *server) complaint() error {
	const enough = 4096
	fi, err := s.log.Stat()
	if err != nil || fi.Size() == 0 {
		return nil
	}
	b := make([]byte, min(fi.Size(), enough))
	if _, err := s.log.ReadAt(b, fi.Size()-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("it said: %s", b)
}

// kill ends the server as a crash would.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

func (s *server) killLocked() {
	if s.life == nil {
		return
	}
	s.life.killed.Store(true)
	_ = s.life.cmd.Process.Kill() // it may be dead already
	<-s.life.gone
}

// restart kills the server and starts it again, from the next binary if it is
// to be another.
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
	if s.life == nil {
		return 0
	}
	return s.life.cmd.Process.Pid
}

// keepers are the processes that keep runs beside the server, if it works
// like that.
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

// copyBinary makes another binary that does the same: a few bytes behind the
// end of the program change what it is, not what it does.
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
