package client_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/skiptest"
)

// ownAddress returns an address of this machine that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	skiptest.Missing(t, "this machine has no network")
	return ""
}

// TestTokenIsNotSentInPlaintext checks that a token goes to no other machine
// without encryption: the address that is dialled decides.
func TestTokenIsNotSentInPlaintext(t *testing.T) {
	var tokens atomic.Int32
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			tokens.Add(1)
		}
		http.Error(w, "seen", http.StatusTeapot)
	})}}
	s.Start()
	defer s.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	own := ownAddress(t)
	for _, c := range []struct {
		host string
		o    client.Options
		sent bool
	}{
		{own, client.Options{Token: "secret"}, false},
		{own, client.Options{Token: "secret", InsecurePlaintext: true}, true},
		{"127.0.0.1", client.Options{Token: "secret"}, true},
		{"localhost", client.Options{Token: "secret"}, true},
	} {
		tokens.Store(0)
		_, err := client.Dial(t.Context(), fmt.Sprintf("ws://%s:%d", c.host, port), c.o)
		if errors.Is(err, client.ErrPlaintext) == c.sent || (tokens.Load() > 0) != c.sent || c.sent && !strings.Contains(err.Error(), "seen") {
			t.Errorf("%s with %+v: %d tokens were sent: %v", c.host, c.o, tokens.Load(), err)
		}
	}
}

// TestTokenFollowsNoRedirect checks that a token goes to the server of the URL
// only.
func TestTokenFollowsNoRedirect(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	if _, err := client.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), client.Options{Token: "secret"}); err == nil || asked.Load() != 0 {
		t.Errorf("the client followed a redirect: %v", err)
	}
}

// TestTLSPin checks which certificates of a server are accepted.
func TestTLSPin(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "reached", http.StatusTeapot)
	}))
	defer s.Close()
	url := "wss" + strings.TrimPrefix(s.URL, "https")
	pin := fmt.Sprintf("sha256:%x", sha256.Sum256(s.Certificate().Raw))
	other := fmt.Sprintf("sha256:%x", sha256.Sum256(nil))
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	for _, c := range []struct {
		name    string
		o       client.Options
		reached bool
	}{
		{"the system's authorities", client.Options{}, false},
		{"the right pin", client.Options{TLSPin: pin}, true},
		{"another pin", client.Options{TLSPin: other}, false},
		{"the server's authority", client.Options{TLS: &tls.Config{RootCAs: roots}}, true},
		{"the server's authority and the right pin", client.Options{TLSPin: pin, TLS: &tls.Config{RootCAs: roots}}, true},
		{"the server's authority and another pin", client.Options{TLSPin: other, TLS: &tls.Config{RootCAs: roots}}, false},
		{"another authority and the right pin", client.Options{TLSPin: pin, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, false},
		{"a pin that is none", client.Options{TLSPin: "sha256:12"}, false},
	} {
		_, err := client.Dial(t.Context(), url, c.o)
		if strings.Contains(err.Error(), "reached") != c.reached {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestRefusals checks which error says why there is no connection.
func TestRefusals(t *testing.T) {
	wants := func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer right":
			http.Error(w, "let in", http.StatusTeapot)
		case "Bearer guest":
			http.Error(w, "not for guests", http.StatusForbidden)
		default:
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(wants))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	connect := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	all := []error{client.ErrUnauthorized, client.ErrNoTLS}
	for _, c := range []struct {
		scheme string
		o      client.Options
		want   error // one of all, or nil
		text   string
	}{
		{"ws", client.Options{Token: "right"}, nil, "let in"},
		{"ws", client.Options{Token: "guest"}, nil, "403 Forbidden"},
		{"ws", client.Options{Token: "wrong"}, client.ErrUnauthorized, "401 Unauthorized"},
		{"http", client.Options{}, client.ErrUnauthorized, "who are you?"},
		{"wss", client.Options{Token: "right"}, client.ErrNoTLS, "the server has no TLS"},
		{"https", client.Options{}, client.ErrNoTLS, "the server has no TLS"},
		{"https", client.Options{Connect: connect}, client.ErrNoTLS, "the server has no TLS"},
	} {
		_, err := client.Dial(t.Context(), c.scheme+"://"+addr, c.o)
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s with %q: %v", c.scheme, c.o.Token, err)
		}
		for _, e := range all {
			if errors.Is(err, e) != (e == c.want) {
				t.Errorf("%s with %q: %v: is it %q? %v", c.scheme, c.o.Token, err, e, e != c.want)
			}
		}
	}
}
