package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/servertest"
)

// authority is a certificate authority of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := new(authority)
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign signs a certificate for a new key; the first one is its own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// writePEM writes a certificate, with its key if there is one, and returns the name
// of the file.
func writePEM(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) string {
	t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if key != nil {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	}
	name := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestClientCertificate checks that a server with --tls-client-ca serves the
// clients that have a certificate of that authority, without a token, and no
// others.
func TestClientCertificate(t *testing.T) {
	ca := newAuthority(t)
	client := &x509.Certificate{Subject: pkix.Name{CommonName: "ada"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	state := t.TempDir()
	hints := captureStderr(t)
	s := servertest.Start(t, state, "--listen", "wss://0.0.0.0:0", "--tls-self-signed", "--tls-client-ca", writePEM(t, ca.cert, nil))
	_, pin, _ := strings.Cut(hints(), "--tls-pin ")
	pin, _, _ = strings.Cut(pin, " ")
	spool := func(args ...string) (string, error) {
		args = append([]string{"--server", s.URL, "--tls-pin", pin}, args...)
		out, err := exec.Command(servertest.Binary(t), args...).CombinedOutput()
		return string(out), err
	}
	if out, err := spool("--tls-client-cert", signedPEM(t, ca, client), "run", "--", "echo", "in"); err != nil || out != "in\n" {
		t.Errorf("with a certificate: %q, %v", out, err)
	}
	if out, err := spool("--tls-client-cert", signedPEM(t, newAuthority(t), client), "run", "--", "echo", "in"); err == nil {
		t.Errorf("with a certificate of another authority: %q", out)
	}
	if out, err := spool("run", "--", "echo", "in"); err == nil {
		t.Errorf("without a certificate: %q", out)
	}
	if _, err := os.Stat(filepath.Join(state, "server-token")); !os.IsNotExist(err) {
		t.Errorf("a token was made: %v", err)
	}
}

// signedPEM writes a certificate that an authority signed.
func signedPEM(t *testing.T, a *authority, template *x509.Certificate) string {
	t.Helper()
	cert, key := a.sign(t, template)
	return writePEM(t, cert, key)
}

// captureStderr makes a file the stderr of the programs that the test starts.
// The function it returns restores stderr and returns what they wrote.
func captureStderr(t *testing.T) func() string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = f
	return func() string {
		os.Stderr = old
		b, err := os.ReadFile(f.Name())
		if err := errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
		return string(b)
	}
}
