package listen

import (
	"path/filepath"
	"testing"
)

// FuzzAddress checks that an address means the same once it is written out, and
// that only a loopback address or a socket is local.
func FuzzAddress(f *testing.F) {
	for _, url := range []string{
		"ws://127.0.0.1:4500", "wss://[::1]:0/", "unix:///run/spool/../x.sock", "ws://example.org:80", "unix://x", "ws://[::ffff:10.0.0.1]:1", "WS://127.0.0.1:1", "ws://[fe80::1%eth0]:9",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		a, err := ParseAddress(url)
		if err != nil {
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Fatalf("%q is %+v, written as %q: %+v, %v", url, a, a.String(), again, err)
		}
		switch {
		case a.Scheme == "unix" && (!filepath.IsAbs(a.Path) || a.TCP.IsValid()):
			t.Errorf("%q is %+v", url, a)
		case a.Scheme != "unix" && (!a.TCP.IsValid() || a.Path != "" || a.Local() != a.TCP.Addr().Unmap().IsLoopback()):
			t.Errorf("%q is %+v", url, a)
		}
	})
}
