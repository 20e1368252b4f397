package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/doctor"
	"github.com/spool-run/spool/internal/listen"
)

// urlDoctor are the flags of spool doctor about a server.
type urlDoctor struct {
	url  string
	deep bool
}

// doctorURL checks a server over HTTP, and what is on the way to it.
func (a *app) doctorURL(ctx context.Context, names []string, at urlDoctor, asJSON bool) error {
	token := os.Getenv("SPOOL_TOKEN")
	if a.tokenFile != "" {
		var err error
		if token, err = readToken(a.tokenFile); err != nil {
			return fmt.Errorf("read token: %w", err)
		}
	}
	if u, err := url.Parse(at.url); err == nil && u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) && !a.plaintext {
		return &hintedError{errors.New("the token would be sent over an unencrypted connection to another machine"), "use https://, or add --insecure-plaintext"}
	}
	config, err := a.tls.config()
	if err != nil {
		return err
	}
	pinned(config, a.tls.pin)
	checks, err := doctor.URLChecks(doctor.URLOptions{URL: at.url, Token: token, TLS: config, Deep: at.deep})
	if err == nil {
		checks, err = doctor.Select(checks, names)
	}
	if err != nil {
		return &usageError{err}
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	size, _ := terminalSize(a.stdout)
	p := &findingPrinter{a: a, json: asJSON, cols: int(size.Cols), coloured: colour(a.stdout)}
	p.live = !asJSON && colour(a.stderr)
	for f := range doctor.Run(ctx, checks, p.running) {
		if err := p.print(f); err != nil {
			return &writeError{err}
		}
	}
	return p.end(ctx)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// pinned has a configuration accept the certificate with a fingerprint, and no other.
func pinned(config *tls.Config, pin string) {
	if pin == "" {
		return
	}
	config.InsecureSkipVerify = true // the fingerprint says more than an authority
	config.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		if len(raw) == 0 || listen.Fingerprint(&tls.Config{Certificates: []tls.Certificate{{Certificate: raw}}}) != pin {
			return errors.New("the server has another certificate than --tls-pin says")
		}
		return nil
	}
}
