// Package natsd is the store of a cluster on NATS: an embedded server for control
// nodes, and the facts of the cluster in streams of JetStream. It is the only package
// that knows NATS.
package natsd

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spool-run/spool/internal/cluster/natsd/serverinit"
)

// ServerOptions configure an embedded server.
type ServerOptions struct {
	Name   string
	Dir    string // of its files
	Client string // address for nodes that have no server, HOST:PORT
	Route  string // address for the other servers; empty if there are none
	Routes []string
	TLS    *tls.Config // of both addresses; nil means none, for tests
	Log    *slog.Logger
}

// Limits of an embedded server.
const (
	// MaxStore bounds what the facts take on disk.
	MaxStore = 16 << 30
	// MaxMemory bounds what the server keeps in memory of streams that are not on disk.
	MaxMemory = 64 << 20
	// maxFact bounds a fact.
	maxFact = 1 << 20

	readyFor = 30 * time.Second
)

// Server is an embedded NATS server.
type Server struct {
	s    *server.Server
	stop context.CancelFunc // of what keeps the access time
	kept sync.WaitGroup     // of the same
}

// initServer initialises the packages of the server, which other commands do without.
var initServer = sync.OnceFunc(serverinit.Run)

// Start starts an embedded server.
func Start(o ServerOptions) (*Server, error) {
	host, port, err := split(o.Client)
	if err != nil {
		return nil, err
	}
	initServer()
	opts := &server.Options{
		ServerName: o.Name, Host: host, Port: port, TLSConfig: o.TLS, TLSVerify: o.TLS != nil, TLSTimeout: 5,
		JetStream: true, StoreDir: o.Dir, JetStreamMaxMemory: MaxMemory, JetStreamMaxStore: MaxStore, SyncAlways: true,
		NoSigs: true, MaxPayload: maxFact, NoSublistCache: false, PingInterval: 2 * time.Second, MaxPingsOut: 2,
		DisableShortFirstPing: true, NoLog: true,
	}
	if o.Route != "" {
		rhost, rport, err := split(o.Route)
		if err != nil {
			return nil, err
		}
		opts.Cluster = server.ClusterOpts{Name: "spool", Host: rhost, Port: rport, NoAdvertise: true, TLSConfig: o.TLS, TLSTimeout: 5, PoolSize: -1}
		for _, r := range o.Routes {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: r})
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start the store of the cluster: %w", err)
	}
	if o.Log != nil {
		s.SetLoggerV2(&logger{o.Log}, false, false, false)
	}
	ownAccessTime()
	ctx, stop := context.WithCancel(context.Background())
	embedded := &Server{s: s, stop: stop}
	embedded.kept.Go(func() { keepAccessTime(ctx) })
	go s.Start()
	if !s.ReadyForConnections(readyFor) {
		embedded.Close()
		return nil, fmt.Errorf("start the store of the cluster: it does not listen: is the address %s in use?", o.Client)
	}
	return embedded, nil
}

// split splits an address. Port 0 means any.
func split(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	return host, n, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.s.ClientURL() }

// RouteAddress is where other servers connect.
func (s *Server) RouteAddress() string {
	if a := s.s.ClusterAddr(); a != nil {
		return a.String()
	}
	return ""
}

// Close ends the server. It hands what it leads to others first.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
	s.stop()
	s.kept.Wait()
}

// logger gives the messages of the server to ours.
type logger struct{ log *slog.Logger }

func (l *logger) Noticef(format string, v ...any) { l.log.Debug("nats: " + text(format, v)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Info("nats: " + text(format, v)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Warn("nats: " + text(format, v)) }
func (l *logger) Fatalf(format string, v ...any)  { l.log.Error("nats: " + text(format, v)) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug("nats: " + text(format, v)) }
func (l *logger) Tracef(string, ...any)           {}

func text(format string, v []any) string { return strings.TrimSpace(fmt.Sprintf(format, v...)) }
