package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestKillOfMovedProcess checks that a run whose processes moved to another
// control group is killed, ends, and says how.
func TestKillOfMovedProcess(t *testing.T) {
	e := open(t, Options{})
	if e.Guarantees().Kill != launch.KillCgroup {
		skiptest.Missing(t, "no control groups here")
	}
	s, _ := start(t, e, shell("exit 0"))
	group := s.(*session).tree.Group()
	enginetest.Wait(t, s)
	other, err := os.MkdirTemp(filepath.Join(group, "../../.."), "stray-test-")
	if err != nil {
		skiptest.Missing(t, "make a control group: %v", err)
	}
	defer polltest.Until(t, "removed", func() bool { return os.Remove(other) == nil })

	move := "echo 0 >" + other + "/cgroup.procs && echo $$ && "
	s, log := start(t, e, shell("sh -c '"+move+"exec sleep 1000' & "+move+"wait"))
	pids := pidLines(t, log, 2)
	control(t, s, spool.Control{Op: spool.ControlKill})
	if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
		t.Errorf("outcome is %v", got)
	}
	wantEnded(t, pids)
	if dump := log.Dump(t); !strings.Contains(dump, "2 processes had left the control group; killed by their pidfds") {
		t.Errorf("the log does not say what was needed:\n%s", dump)
	}
}
