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
	// maxSocketPath is what the kernel takes everywhere, with room to spare.
	maxSocketPath = 100
	// privatePrefix begins the name of a directory made for one socket.
	privatePrefix = "spool-"
	privateName   = "keeper.sock"
)

func randomName() string { return rand.Text() }

// listen makes a socket that only this user can connect to.
func listen(path string) (net.Listener, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	// Nobody else can enter the directory, so nobody is faster than chmod.
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

// removeSocket removes a socket that nobody listens on any more.
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

// errPeer refuses a connection of another user.
func errPeer(uid int) error { return fmt.Errorf("connection of user %d refused", uid) }
