package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/collector"
	"github.com/spool-run/spool/internal/fdtable"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/internal/wire/mcpapi"
	"github.com/spool-run/spool/local"
)

// shutdownGrace is how long the clients of a server that ends have to take what they
// are told.
const shutdownGrace = 3 * time.Second

// serveOptions are the flags of spool serve.
type serveOptions struct {
	server  serverOptions // those that exec-server has, too
	hosts   []string
	origins []string
	proxies []string // networks
	behind  access.Proxies
	http    httpapi.Limits

	ship shipOptions

	mcpAnswer bool // the tools for models have one that answers asks
	acp       bool // editors may connect
	// exitIdle ends the server when it had no request for so long; zero means never.
	exitIdle time.Duration
	cluster  clusterOptions
	hook     hookOptions
}

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve runs over HTTP: JSON and server-sent events",
		Long: `Serve offers the runs of this machine over HTTP, to programs in any language and to
pages: start runs, follow their logs as server-sent events, send input, answer asks,
search. docs/api.md describes the API, and GET /openapi.json has it for programs. At
/mcp are the tools for models of "spool mcp"; see docs/mcp.md. With --experimental-acp-http, at
/acp is the agent of "spool acp"; see docs/acp.md. Once it listens, serve prints its URL on
one line. SIGTERM and SIGINT stop the server, whose clients come back with their cursors;
runs go on.

A client can run commands as you, and a page in your browser can send requests to this
machine. So every request needs a token, on loopback too, except on a unix socket, which
only you and root can use. The token of the owner is in the file server-token of the
state directory; those of "spool token create" are valid too, each for its own runs.
A browser signs in at the address that serve prints on stderr, which has a one-time
code; "spool open" opens one with a fresh code, and GET /v1/session says who is in.
Requests with a Host that is not this server, or that pages of other sites send, are
refused.

An address that other machines can reach needs TLS, or --insecure-plaintext. A certificate
is read again when its files change. Behind a proxy that ends TLS, listen on 127.0.0.1, or
on another address with --behind-proxy, and name the server with --host. Then only those
proxies and this machine are served, and what they say of their clients is believed.

With --archive, serve brings finished runs to an archive where they outlive this machine,
and reads the runs there that this machine does not have; see "spool archive --help".

With --notify the server posts a message to a URL when a run asks something and when a
run ends, with the run, its ask or its outcome, a line of text, and a link. The receiver
checks the header Spool-Signature with the secret of --notify-secret: t=TIME,v1=HEX, where
HEX is the HMAC with SHA-256 of TIME, a dot and the body. A URL with a user and a password, or
another that nobody else may see, belongs into the variable SPOOL_NOTIFY.

With --cluster the server is a node of a cluster, after "spool cluster init" or "spool
cluster join": any node answers for the runs of all. docs/cluster.md describes it.

Exit codes: 0 after a signal; 1 on failure; 2 on a usage error.`,
		Example: `  spool serve
  curl -H "Authorization: Bearer $(cat ~/.local/state/spool/server-token)" http://127.0.0.1:7766/v1/runs
  spool open
  spool serve --listen unix:$HOME/.spool/http
  spool serve --listen 0.0.0.0:7766 --tls-self-signed
  spool serve --notify https://ntfy.sh/my-topic
  spool serve --host spool.example.com
  spool serve --listen 0.0.0.0:7766 --behind-proxy 10.0.0.0/8 --host spool.example.com`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.server.listen, "listen", "127.0.0.1:7766", "`address` to listen on: IP:PORT or unix:PATH")
	flags.StringArrayVar(&o.hosts, "host", nil, "`name` of this server in URLs, beside its address and localhost; repeatable")
	flags.StringArrayVar(&o.origins, "allow-origin", nil, "`origin` of pages that may send requests with a token, such as https://example.com; repeatable")
	flags.BoolVar(&o.mcpAnswer, "mcp-allow-answer", false, "offer models at /mcp a tool that answers what runs ask, with which a model can approve what it does")
	flags.BoolVar(&o.acp, "experimental-acp-http", false, "serve editors at /acp?agent=NAME, a WebSocket of the Agent Client Protocol as it is proposed now")
	flags.StringArrayVar(&o.proxies, "behind-proxy", nil, "`network` of proxies, such as 10.0.0.0/8: what they say of their clients is believed (X-Forwarded-For, -Proto, -Host); repeatable")
	flags.StringVar(&o.server.tls.Cert, "tls-cert", "", "`file` with the certificate, in PEM")
	flags.StringVar(&o.server.tls.Key, "tls-key", "", "`file` with the key of the certificate, in PEM")
	flags.BoolVar(&o.server.selfSigned, "tls-self-signed", false, "make a certificate, keep it in the state directory, and print its fingerprint")
	flags.StringVar(&o.server.tokens, "tokens", "", "token `file` of \"spool token create\" (default "+access.TokenFileName+" in the state directory, if it exists)")
	flags.BoolVar(&o.server.audit, "audit", false, "keep an audit log, the run named audit (always with a token file)")
	flags.DurationVar(&o.exitIdle, "exit-idle", 0, "end the server when it had no request for this `time`; runs go on (default never)")
	flags.StringVar(&o.server.logLevel, "log-level", "", "log to stderr at this `level` and above: debug, info, warn or error")
	o.addLimits(flags)
	o.hook.add(flags)
	o.cluster.add(flags)
	o.server.store.add(flags)
	o.ship.add(flags)
	o.server.limits.add(flags, "default-")
	return cmd
}

func (a *app) serve(ctx context.Context, o *serveOptions) (err error) {
	collector.TuneServer()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go collector.ReturnWhenQuiet(ctx)
	go fdtable.Reserve(fdtable.Size)
	if err := hideSecrets(); err != nil {
		return err
	}
	log, err := newLogger(a.stderr, o.server.logLevel)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := errors.Join(o.cluster.check(), o.hook.check()); err != nil {
		return err
	}
	face, err := a.serveListen(o)
	if err != nil {
		return err
	}
	listener := face.listener
	defer listener.Close()
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	defer stop()
	// A node says of the runs that it has what they did; the cluster asks the archive
	// for those that no node has.
	backend, err := a.openRuns(&o.server, !o.cluster.on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	audit, err := o.server.openAudit(ctx, backend, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	ship, err := a.startShipping(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ship.Close()) }()
	runs := spool.Backend(backend)
	var archived cluster.Archive
	if o.cluster.on && a.archive.url != "" {
		b, err := a.openRuns(&o.server, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		archived = b.(cluster.Archive)
	}
	node, err := a.joinCluster(o, backend, archived, ship, log)
	if err != nil {
		return err
	}
	if node != nil {
		defer func() { err = errors.Join(err, node.Close()) }()
		runs = node.Backend()
	}
	hook, err := o.hook.start(ctx, runs, face.page, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hook.Close()) }()
	key, err := a.mcpKey()
	if err != nil {
		return err
	}
	tools := mcpapi.NewHandler(mcpapi.Options{
		Env: envPolicy(false, true), AgentEnv: envPolicy(false, true), AllowAnswer: o.mcpAnswer, Key: key, Version: version().Version, Logger: log,
	})
	rpc := execserver.New(execserver.Options{Backend: runs, Audit: audit, Version: version().Version, Keep: true, RunsOnly: true, Logger: log})
	defer rpc.Close()
	idle := newIdleExit(o.exitIdle)
	api := httpapi.New(httpapi.Options{
		RPC: rpc, Agents: local.Agents, Nodes: node.nodes(), Parked: idle.count,
		ACP: o.acpFace(log), ACPWith: acpAgents,
		Backend: runs, Auth: face.auth, SignIn: face.signIn, Proxies: o.behind, Gate: &access.Gate{Hosts: o.hosts, Origins: o.origins}, MCP: tools.Serve, Audit: audit,
		Version: version().Version, Limits: o.http, Logger: log,
		Gauges: func(gauge func(name, help string, value float64)) {
			ship.gauges(gauge)
			node.gauges(gauge)
		},
	})
	s := newHTTPServer(idle.over(api), log)
	api.Configure(s)
	s.ConnContext = listener.ConnContext
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	defer shutDown(s, listener, api, log)
	control, err := a.control(o, face, node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	if _, err := fmt.Fprintln(a.stdout, face.url); err != nil {
		return fmt.Errorf("print the URL: %w", err)
	}
	for {
		select {
		case sig := <-signals:
			if sig == unix.SIGPIPE {
				continue
			}
			log.Info("ending", "signal", sig)
			return nil
		case <-idle.C():
			log.Info("ending", "idle", o.exitIdle)
			return nil
		case err := <-ended:
			return err
		}
	}
}

// face is where a server listens, and who is admitted.
type face struct {
	listener  *listen.Listener
	url       string // for programs
	page      string // for a browser on this machine; empty if none can open it
	auth      access.Authenticator
	signIn    *access.SignIn // nil without pages
	codes     *access.Codes
	encrypted bool // or only this machine can connect
}

// control opens the control socket of a server, and prints where a browser signs in.
func (a *app) control(o *serveOptions, f *face, node *clusterNode) (io.Closer, error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	c, err := a.serveControl(dir, serveStatus{
		PID: os.Getpid(), URL: f.page, Listen: f.url, TLS: o.server.usesTLS(), Hosts: o.hosts, Origins: o.origins,
		Plaintext: !f.encrypted && len(o.behind) == 0, Version: version().Version, Started: time.Now().UTC(),
	}, f.codes, node)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	if f.page != "" {
		fmt.Fprintf(a.stderr, "a browser signs in, once and within %d minutes, at:\n  %s/#c=%s\n", int(access.CodeFor.Minutes()), f.page, f.codes.Make())
	}
	return c, nil
}

// shutDown ends a server: it stops listening, so that clients which are told that it ends
// come back to the next server; it ends its streams, whose clients are told; then the rest.
func shutDown(s *http.Server, l net.Listener, api *httpapi.Server, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	_ = l.Close() // it is closed in any case
	api.Close(shutdownGrace)
	if err := s.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		log.Info("connections were cut", "err", errors.Join(err, s.Close()))
	}
}

// check checks the flags.
func (o *serveOptions) check() error {
	for _, origin := range o.origins {
		if err := access.CheckOrigin(origin); err != nil {
			return usageErrorf("--allow-origin: %s", err)
		}
	}
	for _, host := range o.hosts {
		if host == "" || strings.ContainsAny(host, "/:*") {
			return usageErrorf("--host %q: use a name without scheme and port, such as spool.example.com", host)
		}
	}
	for _, text := range o.proxies {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil || prefix.Bits() == 0 {
			return usageErrorf("--behind-proxy %q: use a network such as 10.0.0.0/8, or an address", text)
		}
		o.behind = append(o.behind, prefix.Masked())
	}
	return o.checkLimits()
}

// serveListen listens, and finds out who is admitted.
func (a *app) serveListen(o *serveOptions) (*face, error) {
	addr, err := o.address()
	if err != nil {
		return nil, err
	}
	codes := access.NewCodes()
	if addr.Scheme == "unix" {
		l, err := listen.Open(addr, listen.Options{})
		if err != nil {
			return nil, &hintedError{err, listenHint(err)}
		}
		return &face{listener: l, url: "unix:" + addr.Path, auth: l.Authenticator(nil), codes: codes, encrypted: true}, nil
	}
	signIn, file, err := a.serveAuth(o)
	if err != nil {
		return nil, err
	}
	signIn.Codes = codes
	o.server.tls.HTTP2 = o.server.usesTLS()
	config, err := a.serverTLS(&o.server, addr)
	if err != nil {
		return nil, err
	}
	l, err := listen.Open(addr, listen.Options{TLS: config, Token: true, InsecurePlaintext: a.plaintext || len(o.behind) > 0})
	if err != nil {
		return nil, &hintedError{err, serveHint(err)}
	}
	url := strings.Replace(l.URL(), "ws", "http", 1)
	fmt.Fprintf(a.stderr, "the token of the owner is in %s; try:\n  curl -H \"Authorization: Bearer $(%s)\" %s/v1/runs\n",
		file, commandText([]string{"cat", file}), url)
	if o.server.selfSigned {
		fmt.Fprintf(a.stderr, "the certificate is %s, with the fingerprint %s\n", o.server.tls.Cert, listen.Fingerprint(config))
	}
	if !addr.Encrypted() && len(o.behind) == 0 {
		fmt.Fprintf(a.stderr, "spool: serve: warning: --insecure-plaintext: the network between %s and its clients can read and change everything\n", addr.TCP)
	}
	return &face{
		listener: l, url: url, page: pageURL(l, o.hosts), auth: access.Either(signIn.Sessions, signIn.Tokens), signIn: signIn, codes: codes,
		encrypted: addr.Encrypted(),
	}, nil
}

// address reads --listen.
func (o *serveOptions) address() (listen.Address, error) {
	if path, ok := strings.CutPrefix(o.server.listen, "unix:"); ok {
		abs, err := filepath.Abs(strings.TrimPrefix(path, "//"))
		if err != nil || path == "" {
			return listen.Address{}, usageErrorf("--listen %q: use unix:PATH", o.server.listen)
		}
		if o.server.usesTLS() {
			return listen.Address{}, usageErrorf("TLS needs an IP:PORT, not %s", o.server.listen)
		}
		return listen.Address{Scheme: "unix", Path: abs}, nil
	}
	addr := listen.Address{Scheme: "ws"}
	if o.server.usesTLS() {
		addr.Scheme = "wss"
	}
	host, port, err := net.SplitHostPort(o.server.listen)
	if err == nil && host == "localhost" {
		host = "127.0.0.1"
	}
	if err == nil {
		addr.TCP, err = netip.ParseAddrPort(net.JoinHostPort(host, port))
	}
	if err != nil {
		return addr, usageErrorf("--listen %q: use IP:PORT, such as 127.0.0.1:7766, or unix:PATH", o.server.listen)
	}
	return addr, nil
}

// serveAuth returns who may send requests: the owner with the token of the state
// directory, whose file it returns, the subjects of the token file, and the pages that
// signed in as one of them.
func (a *app) serveAuth(o *serveOptions) (signIn *access.SignIn, file string, err error) {
	dir, err := a.stateDir()
	if err != nil {
		return nil, "", err
	}
	if file, err = listen.TokenFile(dir); err != nil {
		return nil, "", err
	}
	owner, err := access.NewBearer(access.BearerOptions{Mode: access.ModeCapabilityToken, TokenFile: file})
	if err != nil {
		return nil, "", err
	}
	open := access.OpenTokens
	path := o.server.tokens
	if path == "" {
		open = access.AwaitTokens
		if path, err = a.tokensPath(""); err != nil {
			return nil, "", err
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			o.server.tokens = path
		}
	}
	tokens, err := open(path)
	if err != nil {
		return nil, "", &hintedError{err, `"spool token create" makes the file`}
	}
	shares, err := access.OpenShares(filepath.Join(dir, access.ShareFileName), tokens)
	if err != nil {
		return nil, "", err
	}
	sessions, err := access.OpenSessions(filepath.Join(dir, access.SessionFileName), tokens, shares)
	if err != nil {
		return nil, "", err
	}
	all := access.Either(owner, access.Either(tokens, shares))
	return &access.SignIn{Sessions: sessions, Tokens: all, File: tokens, Shares: shares}, file, nil
}

// serveHint returns the next step after an error of [listen.Open].
func serveHint(err error) string {
	switch {
	case errors.Is(err, listen.ErrPlaintext):
		return "add --tls-self-signed or --tls-cert, or listen on 127.0.0.1, or name the network of a proxy with --behind-proxy, or add --insecure-plaintext"
	case errors.Is(err, unix.EADDRINUSE):
		return "another program, perhaps another spool serve, listens there: use another port with --listen"
	}
	return listenHint(err)
}
