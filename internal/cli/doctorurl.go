package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/spool-run/spool/internal/doctor"
	"github.com/spool-run/spool/internal/pin"
)

// urlDoctor are the flags of spool doctor about a server.
type urlDoctor struct {
	url  string
	deep bool
}

// doctorURL checks a server over HTTP, and what is on the way to it.
func (a *app) doctorURL(ctx context.Context, names []string, at urlDoctor, o doctorOptions) error {
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
	if a.tls.pin != "" {
		// Like the client, it asks an authority as well only if one is named.
		config.InsecureSkipVerify = config.RootCAs == nil
		if config.VerifyConnection, err = pin.Check(a.tls.pin); err != nil {
			return &usageError{err}
		}
	}
	checks, err := doctor.URLChecks(doctor.URLOptions{URL: at.url, Token: token, TLS: config, Deep: at.deep})
	if err == nil {
		checks, err = doctor.Select(checks, names)
	}
	if err != nil {
		return &usageError{err}
	}
	return a.runChecks(ctx, checks, o)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
