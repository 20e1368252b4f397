package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mark is the variable by which processes of a server are found again. Its value
// is the directory of the server.
const mark = "SPOOL_BENCH_SERVER"

// environ returns the environment of a server whose files are below dir.
func environ(dir string) []string {
	return append(os.Environ(), mark+"="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_DATA_HOME="+dir,
		"XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
}

// process is the process of a server. Its output is in the file log of its
// directory.
type process struct {
	cmd  *exec.Cmd
	dir  string
	done chan struct{} // closed when it has ended
}

// spawn starts a server in dir.
func spawn(dir string, argv ...string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), dir: dir, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, environ(dir)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the status of a server that was stopped means nothing
		close(p.done)
	}()
	return p, nil
}

// ready waits until the probe succeeds. It ends a server that takes too long.
func (p *process) ready(ctx context.Context, probe func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		select {
		case <-p.done:
			log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return fmt.Errorf("%s has ended: %s", filepath.Base(p.cmd.Path), tailOf(log))
		case <-ctx.Done():
			err := fmt.Errorf("%s does not serve: %w", filepath.Base(p.cmd.Path), context.Cause(ctx))
			return errors.Join(err, p.close())
		case <-time.After(2 * time.Millisecond):
		}
		if probe() {
			return nil
		}
	}
}

// answers returns a probe of an HTTP address.
func answers(url string) func() bool {
	return func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode < http.StatusInternalServerError
	}
}

// kill ends the process with SIGKILL and nothing else.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// close ends the process, with SIGKILL if it takes long, and everything that it
// started and left.
func (p *process) close() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		if err := p.kill(); err != nil {
			return err
		}
	}
	return Sweep(p.dir)
}

// Sweep kills the processes that the server of a directory left.
func Sweep(dir string) error {
	want := []byte(mark + "=" + dir)
	for range 100 { // a process may start another one meanwhile
		left := search("environ", func(b []byte) bool {
			for v := range bytes.SplitSeq(b, []byte{0}) {
				if bytes.Equal(v, want) {
					return true
				}
			}
			return false
		})
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("processes of %s do not end", dir)
}

// WithArgument returns the processes that have an argument.
func WithArgument(arg string) []int {
	return search("cmdline", func(b []byte) bool {
		_, args, _ := bytes.Cut(b, []byte{0})
		for v := range bytes.SplitSeq(args, []byte{0}) {
			if string(v) == arg {
				return true
			}
		}
		return false
	})
}

// End kills the processes that have an argument.
func End(arg string) {
	for _, pid := range WithArgument(arg) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// search returns the processes with a file that matches. Those that have ended
// have empty files.
func search(file string, matches func([]byte) bool) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/" + file) // the pattern is correct
	var pids []int
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile(f); err == nil && matches(b) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children returns the processes that a process started.
func children(pid int) []int {
	want := "PPid:\t" + strconv.Itoa(pid) + "\n"
	return search("status", func(b []byte) bool { return strings.Contains(string(b), want) })
}

// freePort returns a port of the loopback that nothing listens on.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}

// tailOf returns the last lines of a text.
func tailOf(text []byte) string {
	const limit = 400
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-limit):])
}
