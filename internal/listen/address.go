package listen

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// ErrAddress is wrapped by the error of a URL that cannot be listened on.
var ErrAddress = errors.New("use unix:///PATH, ws://IP:PORT or wss://IP:PORT")

// Address is where a server listens.
type Address struct {
	Scheme string         // unix, ws or wss
	Path   string         // of a unix socket
	TCP    netip.AddrPort // of ws and wss
}

// ParseAddress reads a URL.
func ParseAddress(url string) (Address, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	a := Address{Scheme: scheme}
	switch {
	case ok && scheme == "unix":
		if a.Path = filepath.Clean(rest); !filepath.IsAbs(rest) {
			return a, fmt.Errorf("listen on %q: %w: unix:// takes an absolute path", url, ErrAddress)
		}
		return a, nil
	case ok && (scheme == "ws" || scheme == "wss"):
		var err error
		if a.TCP, err = netip.ParseAddrPort(strings.TrimSuffix(rest, "/")); err != nil {
			return a, fmt.Errorf("listen on %q: %w: an IP address and a port, not a host name", url, ErrAddress)
		}
		return a, nil
	}
	return a, fmt.Errorf("listen on %q: %w", url, ErrAddress)
}

// Local reports whether only processes of this machine can connect.
func (a Address) Local() bool { return a.Scheme == "unix" || a.TCP.Addr().Unmap().IsLoopback() }

// Encrypted reports whether connections are encrypted or stay on this machine.
func (a Address) Encrypted() bool { return a.Scheme == "wss" || a.Local() }

// place is the address as people write it for any kind of server.
func (a Address) place() string {
	if a.Scheme == "unix" {
		return a.Path
	}
	return a.TCP.String()
}

func (a Address) String() string {
	if a.Scheme == "unix" {
		return "unix://" + a.Path
	}
	return a.Scheme + "://" + a.TCP.String()
}
