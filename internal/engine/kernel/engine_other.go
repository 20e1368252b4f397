//go:build !linux

package kernel

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// Engine runs Python interpreters; there is none on this platform.
type Engine struct{}

var errPlatform = fmt.Errorf("the kernel engine is not available on this platform: %w", spool.ErrUnsupported)

// New reports that the platform is not supported.
func New(Options) (*Engine, error) { return nil, errPlatform }

// Start reports that the platform is not supported.
func (*Engine) Start(context.Context, spool.Spec, engine.Sink) (engine.Session, error) {
	return nil, &spool.StartError{Reason: engine.StartUnsupported, Err: errPlatform}
}

// Probe reports that the platform is not supported.
func (*Engine) Probe(context.Context, spool.Spec) ([]Probed, error) { return nil, errPlatform }

// Close does nothing.
func (*Engine) Close() error { return nil }
