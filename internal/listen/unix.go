package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// maxSocketPath is below the limit of every platform.
const maxSocketPath = 103

// ErrInUse is wrapped by the error of a socket on which a server listens.
var ErrInUse = errors.New("another server listens there")

// listenUnix creates a socket that only this user can connect to, in a directory
// that no other user can change. It replaces the socket of a server that has
// died.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes", maxSocketPath)
	}
	var ln net.Listener
	// Servers that start at the same time wait for each other: none takes the
	// socket that another has just created for one that was left.
	err := locked(filepath.Dir(path), func() (err error) {
		if err := removeStale(path); err != nil {
			return err
		}
		ln, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Until now other users may have been able to connect. They are refused
	// like all connections of other users.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// removeStale removes a socket on which no process listens.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: %w", path, ErrInUse), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) { // a busy server, for example
		return fmt.Errorf("%s: %w: %w", path, ErrInUse, err)
	}
	return os.Remove(path)
}
