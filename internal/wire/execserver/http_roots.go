package execserver

import (
	"crypto/x509"
	"fmt"
	"os"
)

// trustedRoots returns the root certificates of the system and those of the PEM
// file that CODEX_CA_CERTIFICATE, or else SSL_CERT_FILE, names. It returns nil
// if neither is set.
func trustedRoots() (*x509.CertPool, error) {
	for _, name := range []string{"CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"} {
		file := os.Getenv(name)
		if file == "" {
			continue
		}
		const hint = "If you set CODEX_CA_CERTIFICATE or SSL_CERT_FILE, ensure it points to a PEM file " +
			"containing one or more CERTIFICATE blocks, or unset it to use system roots."
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("Failed to read CA certificate file %s selected by %s: %s. %s", file, name, osMessage(err), hint) //nolint:staticcheck // codex's text
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("Failed to load CA certificates from %s selected by %s: no certificates found in PEM file. %s", file, name, hint) //nolint:staticcheck // codex's text
		}
		return roots, nil
	}
	return nil, nil
}
