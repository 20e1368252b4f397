package wasipy

import (
	"os/exec"

	"github.com/spool-run/spool/internal/servertest"
)

// BuiltWorker is how tests start their workers: the real binary in its role,
// as a keeper does.
func BuiltWorker(args ...string) *exec.Cmd {
	bin, err := servertest.Build()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return exec.Command(bin, append([]string{"sandbox-role"}, args...)...)
}
