//go:build linux && !amd64 && !arm64

package forkexec

// Starter starts programs.
type Starter struct{}

// NewStarter returns [ErrUnsupported].
func NewStarter() (*Starter, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Starter) Close() error { return nil }

// Start returns [ErrUnsupported].
func (*Starter) Start(*Program) (pid, pidfd int, err error) { return 0, -1, ErrUnsupported }
