package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spool-run/spool/internal/pin"
	"github.com/spool-run/spool/internal/privatedir"
)

// certificateAge is how long a self-signed certificate is valid.
const certificateAge = 10 * 365 * 24 * time.Hour

// TLSFiles name the files of a server with TLS, all in PEM.
type TLSFiles struct {
	Cert     string // the certificate, and those that lead to an authority
	Key      string // its key, which only this user may read
	ClientCA string // if set, clients need a certificate of one of these authorities
	HTTP2    bool   // the server speaks HTTP/2 as well; a client with WebSockets asks for HTTP/1.1
}

// Config reads the files.
func (f TLSFiles) Config() (*tls.Config, error) {
	fi, err := os.Stat(f.Key)
	if err == nil {
		err = privatedir.CheckSecret(f.Key, fi)
	}
	if err != nil {
		return nil, fmt.Errorf("read TLS key: %w", err)
	}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read TLS certificate: %w", err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"http/1.1"},
	}
	if f.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	if f.ClientCA != "" {
		if config.ClientCAs, err = ReadCertPool(f.ClientCA); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// ReadCertPool reads certificates of authorities.
func ReadCertPool(name string) (*x509.CertPool, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("read certificate authorities: %s has no certificate in PEM", name)
	}
	return pool, nil
}

// Fingerprint returns the digest of a server's certificate, for clients that
// know the certificate in advance.
func Fingerprint(c *tls.Config) string {
	return pin.Of(c.Certificates[0].Certificate[0])
}

// SelfSigned returns the files of the self-signed certificate of a state
// directory. It makes them if they do not exist, with these addresses in the
// certificate beside the names of this machine.
func SelfSigned(dir string, addrs ...netip.Addr) (TLSFiles, error) {
	f := TLSFiles{Cert: filepath.Join(dir, certFile), Key: filepath.Join(dir, keyFile)}
	err := locked(dir, func() error {
		hasCert, err1 := exists(f.Cert)
		hasKey, err2 := exists(f.Key)
		if err := errors.Join(err1, err2); hasCert && hasKey || err != nil {
			return err
		}
		cert, key, err := selfSign(addrs)
		if err != nil {
			return err
		}
		return errors.Join(write(f.Key, key), write(f.Cert, cert))
	})
	if err != nil {
		return TLSFiles{}, fmt.Errorf("make a certificate: %w", err)
	}
	return f, nil
}

// selfSign returns a new certificate and its key in PEM.
func selfSign(addrs []netip.Addr) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "spool"},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(certificateAge),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if host, err := os.Hostname(); err == nil && host != "localhost" {
		template.DNSNames = append(template.DNSNames, host)
	}
	for _, a := range addrs {
		if !a.IsUnspecified() && !a.IsLoopback() {
			template.IPAddresses = append(template.IPAddresses, a.AsSlice())
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
