//go:build !linux

package agents

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// Engine runs coding agents; there is none on this platform.
type Engine struct{}

// New reports that the platform is not supported.
func New(Options) (*Engine, error) {
	return nil, fmt.Errorf("the agent engine is not available on this platform: %w", spool.ErrUnsupported)
}

// Start reports that the platform is not supported.
func (*Engine) Start(context.Context, spool.Spec, engine.Sink) (engine.Session, error) {
	return nil, &spool.StartError{Reason: engine.StartUnsupported, Err: spool.ErrUnsupported}
}

// Close does nothing.
func (*Engine) Close() error { return nil }
