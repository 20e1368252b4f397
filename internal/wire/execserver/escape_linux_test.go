package execserver_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/wire/execserver"
)

func TestTerminateKillsSetsidChild(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	pidFile := filepath.Join(t.TempDir(), "pid")
	p.mustCall(t, "process/start", shell("p", "setsid sh -c 'echo $$ >"+pidFile+"; echo ready; exec sleep 1000' & exec sleep 1000"), nil)
	waitOutput(t, p, "p", "ready")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p.mustCall(t, "process/terminate", map[string]any{"processId": "p"}, nil)
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ended, int(patience/time.Millisecond))
	for err == unix.EINTR {
		n, err = unix.Poll(ended, int(patience/time.Millisecond))
	}
	if n != 1 {
		t.Errorf("the escaped child is alive: %v", err)
	}
	p.closed(t, "p")
}
