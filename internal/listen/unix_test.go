package listen_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/privatedir"
)

// shortDir returns a private directory with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "l")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openUnix(path string) (*listen.Listener, error) {
	a, err := listen.ParseAddress("unix://" + path)
	if err != nil {
		return nil, err
	}
	return listen.Open(a, listen.Options{})
}

// TestUnixSocketIsPrivate checks the permissions of a socket and of a directory
// that is made for it, and that a shared directory is refused.
func TestUnixSocketIsPrivate(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "new", "socket")
	l, err := openUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if l.URL() != "unix://"+path {
		t.Errorf("URL %s", l.URL())
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", name, fi.Mode(), err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := openUnix(filepath.Join(shared, "socket")); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("in a shared directory: %v", err)
	}
}

// TestUnixSocketIsReplaced checks that only a socket without a server is
// replaced.
func TestUnixSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "socket")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false) // as when its server is killed
	if _, err := openUnix(path); !errors.Is(err, listen.ErrInUse) {
		t.Errorf("a live socket: %v", err)
	}
	old.Close()
	l, err := openUnix(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	defer l.Close()
	if _, err := openUnix(path); !errors.Is(err, listen.ErrInUse) {
		t.Errorf("a live socket of ours: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	file := path + ".txt"
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openUnix(file); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// TestOneServerPerSocket checks that of many servers which start at once on the
// socket of a dead server, one gets it.
func TestOneServerPerSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "socket")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	const servers = 20
	type result struct {
		l   *listen.Listener
		err error
	}
	results := make(chan result, servers)
	for range servers {
		go func() {
			l, err := openUnix(path)
			results <- result{l, err}
		}()
	}
	listening := 0
	for range servers {
		switch r := <-results; {
		case r.err == nil:
			listening++
			defer r.l.Close()
		case !errors.Is(r.err, listen.ErrInUse):
			t.Error(r.err)
		}
	}
	if listening != 1 {
		t.Errorf("%d servers listen", listening)
	}
}
