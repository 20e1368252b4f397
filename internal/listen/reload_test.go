package listen_test

import (
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/pin"
)

// TestCertificateIsReloaded replaces the files of a certificate while a server
// listens: new connections get the new one, and a pair that does not fit is passed
// over.
func TestCertificateIsReloaded(t *testing.T) {
	files, config := selfSigned(t, t.TempDir())
	other, otherConfig := selfSigned(t, t.TempDir())
	reloading, err := files.Reloading()
	if err != nil {
		t.Fatal(err)
	}
	if listen.Fingerprint(reloading) != listen.Fingerprint(config) {
		t.Error("the fingerprint is another one")
	}
	l, err := listen.Open(listen.Address{Scheme: "wss", TCP: netip.MustParseAddrPort("127.0.0.1:0")}, listen.Options{TLS: reloading, Token: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake() // the client looks at the certificate
			c.Close()
		}
	}()
	fingerprint := func() string {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return pin.Of(c.ConnectionState().PeerCertificates[0].Raw)
	}
	replace := func(to, from string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to+".new", b, 0o600)
		}
		if err == nil {
			err = os.Rename(to+".new", to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		do   func()
		want *tls.Config
	}{
		{func() {}, config},
		{func() { replace(files.Cert, other.Cert) }, config}, // its key is missing
		{func() { replace(files.Key, other.Key) }, otherConfig},
		{func() { _ = os.Remove(files.Key) }, otherConfig},
		{func() { _ = os.WriteFile(filepath.Clean(files.Key), []byte("nonsense"), 0o600) }, otherConfig},
	} {
		step.do()
		if got := fingerprint(); got != listen.Fingerprint(step.want) {
			t.Errorf("step %d: the certificate is %s", i, got)
		}
	}
}
