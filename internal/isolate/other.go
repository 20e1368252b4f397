//go:build !linux || !(amd64 || arm64)

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/launch"
)

// Suite reports that the platform is not supported.
func Suite(context.Context, []string, func(Result) error) error {
	return fmt.Errorf("no isolation on this platform: %w", spool.ErrUnsupported)
}

// GVisorVersion reports that the platform is not supported.
func GVisorVersion(context.Context) (path, version string, err error) {
	return "", "", fmt.Errorf("no gVisor on this platform: %w", errors.ErrUnsupported)
}

// Role is the first argument of this program in a sandbox; there is none on this
// platform.
const Role = "isolate-role"

// Work reports that the platform is not supported.
func Work([]string) int {
	fmt.Fprintln(os.Stderr, "spool: no isolation on this platform")
	return 2
}

// Sandboxes isolates runs; there is no mechanism on this platform.
type Sandboxes struct{}

// New returns an isolation that refuses every request.
func New(*launch.Launcher) *Sandboxes { return &Sandboxes{} }

// Lease is the isolation of one run; there is none on this platform.
type Lease struct{}

// Prepare refuses every valid request.
func (*Sandboxes) Prepare(request *spool.Isolation, cwd string, _ int, _ string) (*Lease, error) {
	p, err := NewPolicy(request, cwd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	return nil, &Refusal{Profile: p.Profile, Missing: p.Need, Causes: []Cause{{"spool", "no isolation on this platform"}}, Fixes: []string{"use Linux on amd64 or arm64"}}
}

// Close does nothing.
func (*Sandboxes) Close() {}

// Fork is never called.
func (*Lease) Fork(string, []string, *syscall.ProcAttr) (int, error) { return 0, spool.ErrUnsupported }

// Kill is never called.
func (*Lease) Kill() {}

// Isolation is never called.
func (*Lease) Isolation() *spool.Isolation { return nil }

// Sees is never called.
func (*Lease) Sees(string) bool { return false }

// TempDir is never called.
func (*Lease) TempDir() string { return "" }

// Release is never called.
func (*Lease) Release() {}

// LimitFiles refuses every limit.
func LimitFiles(_ *launch.Command, _ *Lease, n int) error {
	if n == 0 {
		return nil
	}
	return &spool.StartError{Reason: engine.StartUnsupported, Err: errors.New("open files cannot be limited on this platform"), Hint: "start the run without --open-files"}
}

// Cell is a wall around processes of Spool itself; there is none on this platform.
type Cell struct{}

// NewCell returns a cell that cannot be used.
func NewCell(CellOptions) *Cell { return &Cell{} }

// Proof reports that the platform is not supported.
func (*Cell) Proof(context.Context) (CellProof, error) { return CellProof{}, spool.ErrUnsupported }

// Fork is never called.
func (*Cell) Fork(string, []string, *syscall.ProcAttr) (int, error) { return 0, spool.ErrUnsupported }

// Close does nothing.
func (*Cell) Close() {}

// TryCell is never called.
func TryCell(string, func() error) int { return 2 }

// Grant refuses every request that isolates.
func Grant(request *spool.Isolation, mechanism string, _ Set, _ map[Guarantee]string) (*spool.Isolation, error) {
	if request == nil || !Isolates(request) {
		return nil, nil
	}
	_, err := (*Sandboxes)(nil).Prepare(request, "/", 0, "")
	return nil, err
}
