package keeper

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/privatedir"
)

const (
	// maxSocketPath is below the limit of every platform.
	maxSocketPath = 100
	// privatePrefix begins the name of a directory for one socket.
	privatePrefix = "spool-"
	privateName   = "keeper.sock"
)

func randomName() string { return rand.Text() }

// listen creates a socket that only this user can connect to.
func listen(path string) (net.Listener, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// No other user can enter the directory, so none connects before chmod.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// RemoveSocket removes the socket of a keeper of the state directory dir that
// died, given the keeper's address. It removes nothing but a socket that
// [socketPath] could have named.
func RemoveSocket(dir, address string) error {
	if path, ok := strings.CutPrefix(address, addressPrefix); ok {
		return removeSocket(dir, path)
	}
	return nil
}

// removeSocket removes the socket of a keeper that has ended.
func removeSocket(dir, path string) error {
	parent := filepath.Dir(path)
	own := filepath.Base(path) == privateName && strings.HasPrefix(filepath.Base(parent), privatePrefix)
	if own && privatedir.Check(parent) != nil || !own && parent != hostsDir(dir) {
		return nil
	}
	fi, err := os.Lstat(path)
	if err == nil {
		if fi.Mode().Type() != fs.ModeSocket {
			return nil
		}
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if own {
		if rmErr := os.Remove(parent); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}
