package codextest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spool-run/spool/internal/tether"
)

// Server is a running `codex exec-server`, the reference for ours.
type Server struct {
	url string
	cmd *exec.Cmd
}

// StartServer starts the exec-server of the given codex binary on a free
// loopback port. Close ends it; it also dies with this process.
func StartServer(binary string, args ...string) (*Server, error) {
	return StartServerWith(binary, nil, args...)
}

// StartServerWith is [StartServer] with variables, as NAME=value, that are added
// to the environment of the server.
func StartServerWith(binary string, env []string, args ...string) (*Server, error) {
	args = append([]string{"exec-server", "--listen", "ws://127.0.0.1:0"}, args...)
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{
		"HOME=" + os.Getenv("HOME"),
		"LANG=C.UTF-8",
		"PATH=" + os.Getenv("PATH"),
	}
	cmd.Env = append(cmd.Env, env...)
	// On SIGTERM the server ends its children; after SIGKILL they would stay.
	cmd.SysProcAttr = tether.Attr(syscall.SIGTERM)
	cmd.WaitDelay = waitDelay
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start exec-server: %w", err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start exec-server: %w", err)
	}
	s := &Server{cmd: cmd}
	line, err := bufio.NewReader(stdout).ReadString('\n') // the server prints one line
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start exec-server: no address: %w\n%s", err, &stderr)
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

// URL returns the URL of the server.
func (s *Server) URL() string { return s.url }

// Close ends the server and its processes.
func (s *Server) Close() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	err := s.cmd.Wait()
	killGroup(s.cmd)
	if err != nil {
		return fmt.Errorf("exec-server: %w", err)
	}
	return nil
}
