package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/execserver"
)

// maxSocketPath is what the kernel takes everywhere, with room to spare.
const maxSocketPath = 100

// privatePrefix begins the name of a directory made for one socket.
const privatePrefix = "spool-"

// socket is where other processes of this user reach the runs of this one.
type socket struct {
	path     string
	listener net.Listener
	http     *http.Server
	server   *execserver.Server
}

// listenSocket makes a socket in the state directory, or in a private
// directory of its own where the path would be too long for one.
func listenSocket(state string) (*socket, error) {
	dir := filepath.Join(state, "hosts")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	path := filepath.Join(dir, rand.Text()+".sock")
	if len(path) > maxSocketPath {
		private, err := os.MkdirTemp("", privatePrefix)
		if err != nil {
			return nil, fmt.Errorf("make a directory for the socket: %w", err)
		}
		path = filepath.Join(private, "host.sock")
	}
	s := &socket{path: path}
	var err error
	// Nobody else can enter the directory, so nobody is faster than chmod.
	if s.listener, err = net.Listen("unix", path); err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for other spool processes: %w", err), s.close())
	}
	return s, nil
}

func (s *socket) address() string { return "unix://" + s.path }

// serve answers until the socket is closed.
func (s *socket) serve(b spool.Backend, log *slog.Logger) {
	s.server = execserver.New(execserver.Options{Backend: b, Version: version().Version, Logger: log})
	s.http = newHTTPServer(s.server, log)
	go func() { _ = s.http.Serve(s.listener) }() // ends with close
}

// close ends all connections and removes the socket.
func (s *socket) close() error {
	if s.http != nil {
		_ = s.http.Close()
		s.server.Close()
	} else if s.listener != nil {
		_ = s.listener.Close()
	}
	return removeSocket(s.address())
}

// removeSocket removes a socket that nobody listens on any more.
func removeSocket(address string) error {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return nil
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if dir := filepath.Dir(path); strings.HasPrefix(filepath.Base(dir), privatePrefix) && filepath.Base(path) == "host.sock" {
		if rmErr := os.Remove(dir); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// newHTTPServer bounds what a peer can make a server hold before it has
// become a connection of the dialect.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.Background() },
	}
}
