package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
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

// RemoveSocket removes the socket of a keeper that died, given its address.
func RemoveSocket(address string) error {
	if path, ok := strings.CutPrefix(address, addressPrefix); ok {
		return removeSocket(path)
	}
	return nil
}

// removeSocket removes the socket of a keeper that has ended.
func removeSocket(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if dir := filepath.Dir(path); filepath.Base(path) == privateName && strings.HasPrefix(filepath.Base(dir), privatePrefix) {
		if rmErr := os.Remove(dir); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// errPeer is the error of a connection from another user.
func errPeer(uid int) error { return fmt.Errorf("connection from user %d refused", uid) }
