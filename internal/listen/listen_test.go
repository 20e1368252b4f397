package listen_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool/internal/listen"
)

// TestParseAddress checks which URLs can be listened on.
func TestParseAddress(t *testing.T) {
	for _, url := range []string{"unix:///run/x.sock", "ws://127.0.0.1:0", "ws://127.0.0.1:9000/", "wss://[::1]:1"} {
		if _, err := listen.ParseAddress(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"", "unix://", "unix://relative", "unix:/x", "ws://localhost:1", "ws://127.0.0.1", "http://127.0.0.1:1", "127.0.0.1:1", "ws://:1",
	} {
		if a, err := listen.ParseAddress(url); !errors.Is(err, listen.ErrAddress) {
			t.Errorf("%s: %v, %v", url, a, err)
		}
	}
}

// TestWhatMayListen checks which combinations of address and options are safe.
func TestWhatMayListen(t *testing.T) {
	token := listen.Options{Token: true}
	noAuth := listen.Options{InsecureNoAuth: true}
	plain := listen.Options{InsecurePlaintext: true}
	for _, c := range []struct {
		url  string
		o    listen.Options
		want error
	}{
		{"ws://127.0.0.1:0", listen.Options{}, nil},
		{"ws://127.0.0.1:0", token, nil},
		{"ws://127.0.0.1:0", noAuth, nil},
		{"ws://[::1]:0", listen.Options{}, nil},
		{"ws://[::ffff:127.0.0.1]:0", listen.Options{}, nil},
		{"ws://0.0.0.0:0", listen.Options{}, listen.ErrPlaintext},
		{"ws://0.0.0.0:0", token, listen.ErrPlaintext},
		{"ws://0.0.0.0:0", noAuth, listen.ErrPlaintext},
		{"ws://[::]:0", token, listen.ErrPlaintext},
		{"ws://0.0.0.0:0", plain, listen.ErrNoAuth},
		{"ws://0.0.0.0:0", listen.Options{InsecurePlaintext: true, Token: true}, nil},
		{"ws://0.0.0.0:0", listen.Options{InsecurePlaintext: true, InsecureNoAuth: true}, nil},
	} {
		a, err := listen.ParseAddress(c.url)
		if err != nil {
			t.Fatal(err)
		}
		l, err := listen.Open(a, c.o)
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s with %+v: %v, want %v", c.url, c.o, err, c.want)
		}
	}
}
