//go:build !linux

package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/spool-run/spool/internal/launch"
)

var errPlatform = fmt.Errorf("not on this platform: %w", errors.ErrUnsupported)

// Work reports that the platform is not supported.
func Work([]string) int { return 2 }

// TryNamespace reports that the platform is not supported.
func TryNamespace(context.Context, Namespace) error { return errPlatform }

// TryLandlock reports that the platform is not supported.
func TryLandlock(context.Context) (Landlocked, error) { return Landlocked{}, errPlatform }

// TrySeccomp reports that the platform is not supported.
func TrySeccomp(context.Context) error { return errPlatform }

// TryPidfd reports that the platform is not supported.
func TryPidfd(context.Context) error { return errPlatform }

// TryTrees reports that the platform is not supported.
func TryTrees(context.Context, launch.TreeMode) (Trees, error) { return Trees{}, errPlatform }

// TryLock reports that the platform is not supported.
func TryLock(context.Context, string) error { return errPlatform }
