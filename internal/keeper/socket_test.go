package keeper

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestOnlyOwnSocketsAreRemoved checks that the address of a dead keeper removes
// its socket in the state directory and nothing else, whatever the address is.
func TestOnlyOwnSocketsAreRemoved(t *testing.T) {
	top, err := os.MkdirTemp("", "s") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	state, private := filepath.Join(top, "state"), filepath.Join(top, privatePrefix+"1")
	shared := filepath.Join(top, privatePrefix+"2")
	for _, dir := range []string{hostsDir(state), private, shared} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path    string
		socket  bool
		removed bool
	}{
		{filepath.Join(top, "victim"), false, false},
		{filepath.Join(top, "other.sock"), true, false},
		{filepath.Join(hostsDir(state), "a.json"), false, false},
		{hostsDir(state) + "/../../victim.sock", true, false},
		{filepath.Join(shared, privateName), true, false},
		{filepath.Join(hostsDir(state), "a.sock"), true, true},
		{filepath.Join(private, privateName), true, true},
	} {
		if c.socket {
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			ln.SetUnlinkOnClose(false)
			ln.Close()
		} else if err := os.WriteFile(c.path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := RemoveSocket(state, addressPrefix+c.path); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		if _, err := os.Lstat(c.path); os.IsNotExist(err) != c.removed {
			t.Errorf("%s: removed is %v, want %v", c.path, !c.removed, c.removed)
		}
	}
	if _, err := os.Stat(private); !os.IsNotExist(err) {
		t.Error("the directory of the socket is left")
	}
}
