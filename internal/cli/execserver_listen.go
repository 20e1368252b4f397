package cli

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/privatedir"
)

// listen reads the secrets and listens, unless stdin and stdout are the
// connection. On an address that other machines can reach it makes a token if no
// flag says who may connect.
func (a *app) listen(o *serverOptions) (*listen.Listener, access.Authenticator, error) {
	if o.listen == "stdio" || o.listen == "stdio://" {
		if o.auth.Mode != "" || o.usesTLS() || o.noAuth || o.tokens != "" {
			return nil, nil, usageErrorf("%s needs no authentication and no TLS: its client is the process that started it", o.listen)
		}
		auth, err := o.authenticator()
		return nil, auth, err
	}
	addr, err := listen.ParseAddress(o.listen)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	if o.noAuth && addr.Scheme == "unix" {
		return nil, nil, usageErrorf("--insecure-no-auth does not go with a unix socket, which only you and root can use")
	}
	if o.noAuth && (o.auth.Mode != "" || o.tls.ClientCA != "") {
		return nil, nil, usageErrorf("--insecure-no-auth admits every client, so it excludes --ws-auth and --tls-client-ca")
	}
	if err := a.findTokens(o, addr); err != nil {
		return nil, nil, err
	}
	if o.tokens != "" || o.auth.Mode == access.ModeSignedBearerToken || o.tls.ClientCA != "" {
		fmt.Fprintln(a.stderr, "spool: exec-server: all subjects share one account: processes of one can read the files of another")
	}
	config, err := a.serverTLS(o, addr)
	if err != nil {
		return nil, nil, err
	}
	makeToken := !addr.Local() && (addr.Encrypted() || a.plaintext) && o.auth.Mode == "" && o.tokens == "" && o.tls.ClientCA == "" && !o.noAuth
	if makeToken {
		dir, err := a.stateDir()
		if err != nil {
			return nil, nil, err
		}
		o.auth.Mode = access.ModeCapabilityToken
		if o.auth.TokenFile, err = listen.TokenFile(dir); err != nil {
			return nil, nil, err
		}
	}
	auth, err := o.authenticator()
	if err != nil {
		return nil, nil, err
	}
	l, err := listen.Open(addr, listen.Options{
		TLS: config, Token: o.auth.Mode != "" || o.tokens != "", InsecureNoAuth: o.noAuth, InsecurePlaintext: a.plaintext,
	})
	if err != nil {
		return nil, nil, &hintedError{err, listenHint(err)}
	}
	if makeToken || o.selfSigned {
		a.printConnect(o, l, config)
	}
	if o.noAuth {
		who := "every user of this machine"
		if !addr.Local() {
			who = "everyone who can reach " + addr.TCP.String()
		}
		fmt.Fprintf(a.stderr, "spool: exec-server: warning: --insecure-no-auth: %s can run commands as you\n", who)
	}
	if !addr.Encrypted() {
		fmt.Fprintf(a.stderr, "spool: exec-server: warning: --insecure-plaintext: the network between %s and its clients can read and change everything\n", addr.TCP)
	}
	return l, l.Authenticator(auth), nil
}

// findTokens sets the token file: that of the flag, or the one in the state
// directory if no flag says who may connect. A unix socket needs no token.
func (a *app) findTokens(o *serverOptions, addr listen.Address) error {
	switch {
	case o.tokens != "" && (o.auth.Mode != "" || o.noAuth):
		return usageErrorf("--tokens excludes --ws-auth and --insecure-no-auth")
	case o.tokens != "" || o.auth.Mode != "" || o.noAuth || o.tls.ClientCA != "" || addr.Scheme == "unix":
		return nil
	}
	path, err := a.tokensPath("")
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	o.tokens = path
	return nil
}

// openAudit starts the audit log, if there is to be one.
func (o *serverOptions) openAudit(ctx context.Context, b spool.Backend, log *slog.Logger) (*access.Audit, error) {
	if o.tokens == "" && !o.audit {
		return nil, nil
	}
	return access.OpenAudit(ctx, b, rand.Text(), log)
}

// authenticator returns what the flags say about who may connect; nil means
// nothing.
func (o *serverOptions) authenticator() (access.Authenticator, error) {
	if o.tokens != "" {
		tokens, err := access.OpenTokens(o.tokens)
		if err != nil {
			return nil, &hintedError{err, `"spool token create" makes the file`}
		}
		return tokens, nil
	}
	bearer, err := access.NewBearer(o.auth)
	if err != nil {
		return nil, &hintedError{err, `see --ws-auth in "spool exec-server --help"`}
	}
	if bearer == nil {
		return nil, nil
	}
	return bearer, nil
}

func (o *serverOptions) usesTLS() bool { return o.selfSigned || o.tls != listen.TLSFiles{} }

// serverTLS returns the TLS configuration of a wss:// address, and nil for
// others.
func (a *app) serverTLS(o *serverOptions, addr listen.Address) (*tls.Config, error) {
	switch {
	case addr.Scheme != "wss" && o.usesTLS():
		return nil, usageErrorf("TLS needs a wss:// address, not %s", o.listen)
	case addr.Scheme != "wss":
		return nil, nil
	case o.selfSigned && (o.tls.Cert != "" || o.tls.Key != ""):
		return nil, usageErrorf("--tls-self-signed and --tls-cert exclude each other")
	case o.selfSigned:
		dir, err := a.stateDir()
		if err != nil {
			return nil, err
		}
		files, err := listen.SelfSigned(dir, addr.TCP.Addr())
		if err != nil {
			return nil, err
		}
		o.tls.Cert, o.tls.Key = files.Cert, files.Key
	case o.tls.Cert == "" || o.tls.Key == "":
		return nil, usageErrorf("wss:// needs --tls-cert and --tls-key, or --tls-self-signed")
	}
	config, err := o.tls.Reloading()
	if err != nil {
		return nil, &hintedError{err, `see --tls-cert in "spool exec-server --help"`}
	}
	return config, nil
}

// printConnect prints how clients connect. It names the file of the token and
// never the token: stderr may be a log that others read.
func (a *app) printConnect(o *serverOptions, l *listen.Listener, config *tls.Config) {
	argv := []string{"spool", "--server", l.ClientURL()}
	if o.selfSigned {
		argv = append(argv, "--tls-pin", listen.Fingerprint(config))
	}
	if o.tls.ClientCA != "" {
		argv = append(argv, "--tls-client-cert", "CERT.pem")
	}
	if o.auth.TokenFile != "" {
		argv = append(argv, "--token-file", o.auth.TokenFile)
	}
	if a.plaintext && config == nil {
		argv = append(argv, "--insecure-plaintext")
	}
	fmt.Fprintf(a.stderr, "clients connect with:\n  %s\n", commandText(append(argv, "ps")))
	if o.auth.TokenFile == "" {
		return
	}
	fmt.Fprintf(a.stderr, "on another machine they need a copy of the token that only they can read: %s\n", o.auth.TokenFile)
	if config == nil {
		return
	}
	fmt.Fprintf(a.stderr, `codex connects after:
(umask 077; set -C; cat >~/.codex/environments.toml) <<END
default = "spool"
include_local = false
[[environments]]
id = "spool"
url = "%s"
auth_bearer_token = "$(%s)"
END
`, l.ClientURL(), commandText([]string{"cat", o.auth.TokenFile}))
	if o.selfSigned {
		fmt.Fprintf(a.stderr, "and with SSL_CERT_FILE set to a file of authorities that includes %s\n", o.tls.Cert)
	}
}

// listenHint returns the next step after an error of [listen.Open].
func listenHint(err error) string {
	switch {
	case errors.Is(err, listen.ErrPlaintext):
		return "use wss:// with --tls-self-signed, or listen on 127.0.0.1, or add --insecure-plaintext"
	case errors.Is(err, listen.ErrNoAuth):
		return "add --ws-auth, or listen on 127.0.0.1"
	case errors.Is(err, listen.ErrNoPeers):
		return "add --ws-auth or --insecure-no-auth, or listen on a unix socket"
	case errors.Is(err, privatedir.ErrNotPrivate):
		return `listen in a directory of your own, such as "unix://$HOME/.spool/socket"`
	case errors.Is(err, listen.ErrInUse):
		return "use that server, or another path"
	}
	return "port 0 chooses a free port"
}
