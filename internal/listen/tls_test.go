package listen_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/privatedir"
)

// selfSigned returns the configuration of the self-signed certificate of a state
// directory.
func selfSigned(t *testing.T, dir string) (listen.TLSFiles, *tls.Config) {
	t.Helper()
	files, err := listen.SelfSigned(dir, netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	return files, config
}

// TestSelfSigned checks that a certificate is made once, and that only its user
// can read it.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	files, config := selfSigned(t, dir)
	for _, name := range []string{files.Cert, files.Key} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	pin := listen.Fingerprint(config)
	if _, again := selfSigned(t, dir); listen.Fingerprint(again) != pin || !strings.HasPrefix(pin, "sha256:") || len(pin) != len("sha256:")+64 {
		t.Errorf("fingerprints %s and %s", pin, listen.Fingerprint(again))
	}
	cert, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "192.0.2.1"} {
		if err := cert.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if cert.IsCA {
		t.Error("the certificate can sign others")
	}
	if err := os.Chmod(files.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.SelfSigned(dir); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("a key that others can read: %v", err)
	}
	if _, err := files.Config(); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("a key that others can read: %v", err)
	}
}

// TestTokenFile checks that a token is made once, and that only its user can
// read it.
func TestTokenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	name, err := listen.TokenFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(name)
	if err != nil || len(strings.TrimSpace(string(token))) != 64 {
		t.Errorf("token %q, %v", token, err)
	}
	if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", name, fi.Mode(), err)
	}
	again, err := listen.TokenFile(dir)
	if err != nil || again != name {
		t.Errorf("%s, %v", again, err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != string(token) {
		t.Errorf("the token changed from %q to %q, %v", token, b, err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.TokenFile(dir); !errors.Is(err, privatedir.ErrNotPrivate) {
		t.Errorf("a token that others can read: %v", err)
	}
}

// TestTLSListener checks the versions of TLS that a listener speaks, and that it
// needs a certificate.
func TestTLSListener(t *testing.T) {
	a, err := listen.ParseAddress("wss://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen.Open(a, listen.Options{}); !errors.Is(err, listen.ErrNoCertificate) {
		t.Errorf("without a certificate: %v", err)
	}
	_, config := selfSigned(t, t.TempDir())
	l, err := listen.Open(a, listen.Options{TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ConnContext: l.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject, err := l.Authenticator(nil).Authenticate(r)
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(w, subject.String())
	})}
	defer s.Close()
	go s.Serve(l)
	get := func(version uint16) (string, error) {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
		}}}
		resp, err := c.Get(strings.Replace(l.URL(), "wss", "https", 1))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if got, err := get(version); err != nil || got != "owner" {
			t.Errorf("%s: %q, %v", tls.VersionName(version), got, err)
		}
	}
	if got, err := get(tls.VersionTLS11); err == nil {
		t.Errorf("TLS 1.1: %q", got)
	}
}
