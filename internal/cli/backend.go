package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/local"
)

// remote returns the URL of the server, if the command acts on one.
func (a *app) remote() (url string, ok bool) {
	return a.server, a.server != ""
}

// open opens the backend that the flags name.
func (a *app) open(ctx context.Context) (local.Backend, error) {
	if url, ok := a.remote(); ok {
		return a.dial(ctx, url)
	}
	opts, err := a.store.options()
	if err != nil {
		return nil, err
	}
	a.readArchive(&opts)
	return a.openLocal(opts)
}

func (a *app) dial(ctx context.Context, url string) (local.Backend, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme {
	case "ws", "wss", "unix", "http", "https":
	default:
		return nil, usageErrorf("server %q: the URL must begin with http://, https://, ws://, wss:// or unix://", url)
	}
	token := os.Getenv("SPOOL_TOKEN")
	if a.tokenFile != "" {
		var err error
		if token, err = readToken(a.tokenFile); err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
	}
	reconnect := a.reconnect
	if reconnect <= 0 {
		reconnect = -1 // no reconnect; zero means the default
	}
	config, err := a.tls.config()
	if err != nil {
		return nil, err
	}
	if isTerminal(a.stderr) {
		a.reconnecting.terminal = a.stderr
	}
	c, err := client.Dial(ctx, url, client.Options{
		Token: token, Reconnect: reconnect, OnReconnect: a.reconnecting.set, InsecurePlaintext: a.plaintext,
		TLS: config, TLSPin: a.tls.pin,
	})
	if err != nil {
		return nil, &hintedError{err, dialHint(err)}
	}
	return c, nil
}

// dialHint returns the next step after an error of [client.Dial].
func dialHint(err error) string {
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, client.ErrPlaintext):
		return "use a wss:// server or a tunnel, or add --insecure-plaintext"
	case errors.Is(err, client.ErrOtherCertificate):
		return "compare the fingerprint with the one that the server prints, and correct --tls-pin"
	case errors.Is(err, client.ErrUnauthorized):
		return `give its token with --token-file or SPOOL_TOKEN: that of its owner is in the file server-token of its state directory`
	case errors.Is(err, client.ErrNoTLS):
		return "use http:// or ws://"
	case errors.As(err, &unknown):
		return "give the fingerprint that the server prints with --tls-pin, or the authority with --tls-ca"
	case errors.Is(err, syscall.ECONNREFUSED):
		return `is "spool serve" or "spool exec-server" running there?`
	}
	return `is "spool serve" or "spool exec-server" running there, and the token right?`
}

// clientTLS are the flags of connections with wss:// servers.
type clientTLS struct{ pin, ca, cert string }

// config reads the files that the flags name.
func (c clientTLS) config() (*tls.Config, error) {
	config := new(tls.Config)
	var err error
	if c.ca != "" {
		if config.RootCAs, err = listen.ReadCertPool(c.ca); err != nil {
			return nil, err
		}
	}
	if c.cert != "" {
		b, err := readSecret(c.cert)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		cert, err := tls.X509KeyPair(b, b)
		if err != nil {
			return nil, fmt.Errorf("read client certificate %s: %w", c.cert, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// isLost reports whether the connection to the server is lost.
func isLost(err error) bool {
	var lost *client.DisconnectedError
	return errors.Is(err, spool.ErrClosed) || errors.As(err, &lost)
}

// openLocal opens the runs of this machine.
func (a *app) openLocal(o local.Options) (local.Backend, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	return local.Open(dir, o)
}

// stateDir returns the state directory of this machine.
func (a *app) stateDir() (string, error) {
	if a.state != "" {
		return filepath.Abs(a.state)
	}
	dir, err := local.DefaultDir()
	if err != nil {
		return "", &hintedError{err, "name one with --state or SPOOL_STATE"}
	}
	return dir, nil
}

// with opens a backend, calls do, and closes the backend.
func with(open func(context.Context) (local.Backend, error), ctx context.Context, do func(spool.Backend) error) error {
	b, err := open(ctx)
	if err != nil {
		return err
	}
	err = do(b)
	if closeErr := b.Close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	return err
}

// readToken reads the token in a file that other users cannot read.
func readToken(name string) (string, error) {
	b, err := readSecret(name)
	return strings.TrimSpace(string(b)), err
}

// readSecret reads a file that other users cannot read.
func readSecret(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := privatedir.CheckSecret(name, fi); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// findInfo finds a run by what a person typed, and describes it.
func findInfo(ctx context.Context, b spool.Backend, name string) (*spool.Run, spool.Info, error) {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return nil, spool.Info{}, err
	}
	info, err := run.Info(ctx)
	return run, info, err
}
