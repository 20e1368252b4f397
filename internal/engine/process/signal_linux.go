package process

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// parseSignal understands "SIGHUP", "HUP", "hup" and "1".
func parseSignal(s string) (unix.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0, fmt.Errorf("signal %d: %w", n, spool.ErrInvalid)
		}
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("signal %q: %w", s, spool.ErrInvalid)
}

func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(sig))
}

// outcomeOf translates what wait said.
func outcomeOf(ws unix.WaitStatus) spool.Outcome {
	if ws.Signaled() {
		return spool.Outcome{Kind: spool.Exited, Code: 128 + int(ws.Signal()), Signal: signalName(ws.Signal())}
	}
	return spool.Outcome{Kind: spool.Exited, Code: ws.ExitStatus()}
}
