package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spool-run/spool/internal/peer"
	"github.com/spool-run/spool/internal/pin"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// ErrPlaintext is wrapped by the error of [Dial] with a token and a ws:// URL of
// another machine, unless [Options.InsecurePlaintext] is set.
var ErrPlaintext = errors.New("a token is not sent over an unencrypted connection to another machine")

// ErrUnauthorized is wrapped by the error of a server that does not accept the token,
// or wants one and got none.
var ErrUnauthorized = errors.New("the server does not accept the token")

// ErrNoTLS is wrapped by the error of a wss:// or https:// URL whose server speaks
// without TLS.
var ErrNoTLS = errors.New("the server has no TLS")

// ErrOtherCertificate is wrapped by the error of a server whose certificate is
// not the one of [Options.TLSPin].
var ErrOtherCertificate = pin.ErrOther

// httpClient returns the client that makes connections. It uses no proxy and
// follows no redirect: a token goes to the server of the URL and nowhere else.
func (o *Options) httpClient(socket string) (*http.Client, error) {
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		DialContext: o.dialPlain,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if o.Connect == nil {
				return rpc.DialTLS(ctx, network, addr, config)
			}
			c, err := o.Connect(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return rpc.TLS(ctx, c, addr, config)
		},
	}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, socket) }
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: refuse}, nil
}

// dialPlain connects without encryption. The address that was reached decides,
// not the name in the URL.
func (o *Options) dialPlain(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := rpc.Dial
	if o.Connect != nil {
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := o.Connect(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return rpc.Plain(c), nil
		}
	}
	c, err := dial(ctx, network, addr)
	if err != nil || o.Token == "" || o.InsecurePlaintext {
		return c, err
	}
	if to, ok := c.RemoteAddr().(*net.TCPAddr); !ok || !to.IP.IsLoopback() {
		return nil, errors.Join(&refusedError{fmt.Errorf("%w: %s is at %s", ErrPlaintext, addr, c.RemoteAddr())}, c.Close())
	}
	return c, nil
}

// dialUnix connects to a socket on which this user or root listens. Another user
// could have made the socket to receive the commands and the token.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	c, err := rpc.Dial(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if _, err := peer.Check(c); err != nil {
		return nil, errors.Join(&refusedError{fmt.Errorf("%s: %w", path, err)}, c.Close())
	}
	return c, nil
}

// tlsConfig returns the configuration of wss:// connections.
func (o *Options) tlsConfig() (*tls.Config, error) {
	config := new(tls.Config)
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	config.NextProtos = []string{"http/1.1"}
	if o.TLSPin == "" {
		return config, nil
	}
	check, err := pin.Check(o.TLSPin)
	if err != nil {
		return nil, err
	}
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if err := check(s); err != nil {
			return &refusedError{err}
		}
		if verify != nil {
			return verify(s)
		}
		return nil
	}
	// The pin stands for the certificate: only certificate authorities that the
	// caller names are asked as well.
	config.InsecureSkipVerify = config.RootCAs == nil
	return config, nil
}
