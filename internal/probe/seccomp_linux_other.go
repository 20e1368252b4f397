//go:build linux && !amd64 && !arm64

package probe

import (
	"context"
	"errors"
	"fmt"
)

// TrySeccomp reports that there are no filters for the architecture.
func TrySeccomp(context.Context) error {
	return fmt.Errorf("not on this architecture: %w", errors.ErrUnsupported)
}

func seccompTask([]string) (any, error) { return nil, TrySeccomp(context.Background()) }
