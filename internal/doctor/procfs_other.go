//go:build !linux

package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// process is a process of this user.
type process struct {
	pid  int
	args []string
	cwd  string
}

var errPlatform = fmt.Errorf("not on this platform: %w", errors.ErrUnsupported)

func spoolProcesses() ([]process, error) { return nil, errPlatform }

func listeners() ([]listener, error) { return nil, errPlatform }

func unixListeners() ([]string, error) { return nil, errPlatform }

func liveOwners() (func(owner string) bool, error) { return nil, errPlatform }

func dialAs(int, netip.AddrPort) (net.Conn, error) { return nil, errPlatform }
