//go:build !linux

package launch

import (
	"fmt"

	"github.com/spool-run/spool"
)

// Launcher starts processes; there is none on this platform.
type Launcher struct{}

// New reports that the platform is not supported.
func New(Options) (*Launcher, error) {
	return nil, fmt.Errorf("the process engine is not available on this platform: %w", spool.ErrUnsupported)
}

// SweepOwner reports that the platform is not supported.
func SweepOwner(string) (killed int, err error) {
	return 0, fmt.Errorf("the process engine is not available on this platform: %w", spool.ErrUnsupported)
}

// Measure reports that the platform is not supported.
func Measure([]int) (map[int]Usage, error) {
	return nil, fmt.Errorf("the use of processes cannot be measured on this platform: %w", spool.ErrUnsupported)
}

// ResetSIGCHLD does nothing on this platform.
func ResetSIGCHLD() error { return nil }

// Owned reports that the platform is not supported.
func Owned() (map[string][]int, error) {
	return nil, fmt.Errorf("the process engine is not available on this platform: %w", spool.ErrUnsupported)
}

// OwnProcesses reports that there is no limit.
func OwnProcesses() (now, most int, ok bool) { return 0, 0, false }
