package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/collector"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/fdtable"
	"github.com/spool-run/spool/internal/listen"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/local"
)

// exitOnStdinClose is the variable that codex sets for --exit-on-stdin-close.
const exitOnStdinClose = "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"

// serverOptions are the flags of spool exec-server.
type serverOptions struct {
	listen      string
	concurrent  int
	auth        access.BearerOptions
	skew        int
	noAuth      bool
	tokens      string
	audit       bool
	tls         listen.TLSFiles
	selfSigned  bool
	exitOnClose bool
	logLevel    string
	detached    time.Duration
	closed      time.Duration
	store       storeOptions
	onExit      string
	limits      limitFlags
	server      serverLimits
}

func (a *app) execServerCommand() *cobra.Command {
	var o serverOptions
	cmd := &cobra.Command{
		Use:   "exec-server [flags]",
		Short: "Serve runs to codex and to other machines",
		Long: `Exec-server runs commands for remote clients: for codex, in place of codex's own
exec-server, and for "spool --server". Once it listens, it prints its URL on one
line. SIGTERM and SIGINT stop the server and everything it started; the logs
stay. With "--on-exit keep" they stop only the server: the keeper process of the
state directory keeps the runs alive, as it does when the server is killed, and
the next server continues the same sessions. Sessions that no server continues
end after --detached-for.

A client can run commands as you. So clients are told apart: on a unix socket,
and on a loopback address without --ws-auth, the kernel says whose process
connects, and only yours and those of root are served. An address that other
machines can reach needs wss:// with a certificate, and a token: without
--ws-auth or --tls-client-ca, exec-server makes one and keeps it in the state
directory. It prints on stderr how clients connect. What weakens this begins with
--insecure.

Several people share a server with the tokens of "spool token create": each
subject has its own runs and sessions, within its scopes and quotas, and an audit
log says who did what. All subjects share your account.

Exit codes: 0 after a signal or the end of its input; 1 on failure.`,
		Example: `  spool exec-server
  spool exec-server --listen ws://127.0.0.1:9000
  spool exec-server --listen unix://$HOME/.spool/socket
  spool exec-server --listen wss://0.0.0.0:9000 --tls-self-signed
  spool exec-server --listen wss://0.0.0.0:9000 --tls-cert cert.pem --tls-key key.pem
  spool exec-server --listen stdio`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.isSet("exec-server.ws-max-clock-skew-seconds") {
				skew := time.Duration(o.skew) * time.Second
				o.auth.MaxClockSkew = &skew
			}
			return a.execServer(cmd.Context(), &o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "ws://127.0.0.1:0", "`URL` to listen on: unix:///PATH, ws://IP:PORT, wss://IP:PORT, stdio or stdio://")
	flags.IntVar(&o.concurrent, "concurrent-requests", 1, "accepted for compatibility with codex; has no effect")
	flags.StringVar(&o.auth.Mode, "ws-auth", "", "who may connect: capability-token or signed-bearer-token")
	flags.StringVar(&o.auth.TokenFile, "ws-token-file", "", "`file` with the capability token")
	flags.StringVar(&o.auth.TokenSHA256, "ws-token-sha256", "", "SHA-256 of the capability token, in `hex`")
	flags.StringVar(&o.auth.SharedSecretFile, "ws-shared-secret-file", "", "`file` with the secret that signs bearer tokens")
	flags.StringVar(&o.auth.Issuer, "ws-issuer", "", "required issuer of signed tokens")
	flags.StringVar(&o.auth.Audience, "ws-audience", "", "required audience of signed tokens")
	flags.IntVar(&o.skew, "ws-max-clock-skew-seconds", int(access.DefaultClockSkew/time.Second), "allowed clock difference in `seconds`")
	flags.StringVar(&o.tls.Cert, "tls-cert", "", "`file` with the certificate for wss://, in PEM")
	flags.StringVar(&o.tls.Key, "tls-key", "", "`file` with the key of the certificate, in PEM")
	flags.BoolVar(&o.selfSigned, "tls-self-signed", false, "make a certificate, keep it in the state directory, and print its fingerprint for --tls-pin")
	flags.StringVar(&o.tls.ClientCA, "tls-client-ca", "", "`file` with the authorities of the certificates that clients need, in PEM")
	flags.StringVar(&o.tokens, "tokens", "", "token `file` of \"spool token create\" (default "+access.TokenFileName+" in the state directory, if it exists)")
	flags.BoolVar(&o.audit, "audit", false, "keep an audit log, the run named audit (always with a token file)")
	flags.BoolVar(&o.noAuth, "insecure-no-auth", false, "let every client that can connect run commands as you")
	flags.BoolVar(&o.exitOnClose, "exit-on-stdin-close", false, "exit when stdin closes (default $"+exitOnStdinClose+")")
	flags.StringVar(&o.logLevel, "log-level", "", "log to stderr at this `level` and above: debug, info, warn or error")
	flags.DurationVar(&o.detached, "detached-for", execserver.DefaultDetached, "`time` that a session lives without a connection")
	flags.DurationVar(&o.closed, "closed-for", execserver.DefaultClosed, "`time` that the id of a closed process stays reserved")
	o.store.add(flags)
	flags.StringVar(&o.onExit, "on-exit", "end", "what SIGTERM does to the runs: end them, or keep them for the next server")
	o.limits.add(flags, "default-")
	o.server.add(flags)
	return cmd
}

// isTrue parses a boolean environment variable as codex does.
func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "", "0", "f", "false", "n", "no", "off":
		return false
	}
	return true
}

func (a *app) execServer(ctx context.Context, o *serverOptions) (err error) {
	collector.TuneServer()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go collector.ReturnWhenQuiet(ctx)
	go fdtable.Reserve(fdtable.Size)
	if err := hideSecrets(); err != nil {
		return err
	}
	log, err := newLogger(a.stderr, o.logLevel)
	if err != nil {
		return err
	}
	keep := false
	switch o.onExit {
	case "end":
	case "keep":
		keep = true
	default:
		return usageErrorf("--on-exit %q: use end or keep", o.onExit)
	}
	limits, err := o.server.limits()
	if err != nil {
		return err
	}
	listener, auth, err := a.listen(o)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	signals, stop := notify(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	defer stop()

	backend, err := a.openRuns(o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	audit, err := o.openAudit(ctx, backend, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	server := execserver.New(execserver.Options{
		Backend: backend, Auth: auth, Audit: audit, Version: version().Version, Cwd: cwd,
		Detached: o.detached, Closed: o.closed, Keep: keep, Limits: limits, Logger: log,
	})
	defer server.Close()

	ended := make(chan error, 2)
	if listener == nil {
		in := a.closableStdin()
		defer in.Close()
		go func() { ended <- server.ServeStdio(ctx, in, a.stdout) }()
	} else {
		if _, err := fmt.Fprintln(a.stdout, listener.URL()); err != nil {
			return fmt.Errorf("print the URL: %w", err)
		}
		s := newHTTPServer(server, log)
		s.ConnContext = listener.ConnContext
		s.ReadHeaderTimeout = limits.Handshake
		defer s.Close()
		go func() { ended <- s.Serve(listener) }()
		if o.exitOnClose {
			go func() {
				_, err := io.Copy(io.Discard, a.stdin)
				log.Info("stdin ended", "err", err)
				ended <- nil
			}()
		}
	}
	for {
		select {
		case s := <-signals:
			if s == unix.SIGPIPE {
				continue
			}
			log.Info("ending", "signal", s)
			return nil
		case err := <-ended:
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			}
			return err
		}
	}
}

// hideSecrets keeps the environment of the server from its clients, who can read
// files and run programs as the same user. The token is for servers that this
// user connects to: no run inherits it.
func hideSecrets() error {
	return errors.Join(os.Unsetenv("SPOOL_TOKEN"), environ.HideBlock())
}

// closableStdin returns stdin behind a pipe that can be closed: a read of stdin
// itself cannot be cancelled.
func (a *app) closableStdin() io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, a.stdin)
		_ = w.CloseWithError(err) // never fails
	}()
	return r
}

// openRuns opens the runs of the state directory with the options of the flags, and
// those of the archive.
func (a *app) openRuns(o *serverOptions, archived bool) (local.Backend, error) {
	limits, err := o.limits.limits()
	if err != nil {
		return nil, err
	}
	opts, err := o.store.options()
	if err != nil {
		return nil, err
	}
	opts.Limits = limits
	a.store.cache = o.store.cache
	if archived {
		a.readArchive(&opts)
	}
	return a.openLocal(opts)
}

// newHTTPServer returns a server with limits on what a client can use before
// its request becomes a WebSocket connection.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    httpapi.DefaultHeaders, // beyond which net/http has some room
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.Background() },
	}
}

// newLogger returns a logger for a level and above; without a level it logs
// nothing.
func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	if level == "" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageErrorf("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}
