package torture

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// startPeer starts another exec-server, such as codex, on a free loopback port.
// stop ends it; it also dies with the torture process.
func startPeer(binary string) (url string, pid int, stop func(), err error) {
	cmd := exec.Command(binary, "exec-server", "--listen", "ws://127.0.0.1:0")
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, fmt.Errorf("start %s: %w", binary, err)
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the peer ends its processes
		_ = cmd.Wait()                          // its exit status does not matter
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", 0, nil, fmt.Errorf("start %s: it printed no URL: %w", binary, err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid, stop, nil
}
