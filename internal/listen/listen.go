// Package listen makes the listeners of servers and decides what protects each
// of them:
//
//   - a unix socket: the kernel says whose process connects
//   - TCP on loopback without a token: the same, see package peer
//   - TCP that other machines can reach: TLS, and a token or a certificate
//
// What is weaker needs an option whose name begins with Insecure.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/spool-run/spool/internal/peer"
)

// Options configure a listener.
type Options struct {
	// Token says that the server checks a token of every request.
	Token bool
	// InsecureNoAuth admits every client that can connect.
	InsecureNoAuth bool
	// InsecurePlaintext allows unencrypted connections with other machines.
	InsecurePlaintext bool
}

// Errors of an address that needs more protection.
var (
	// ErrPlaintext means that tokens and output would be readable on the way.
	ErrPlaintext = errors.New("connections from other machines would not be encrypted")
	// ErrNoAuth means that clients could not be told apart.
	ErrNoAuth = errors.New("every client that can reach it could run commands here")
	// ErrNoPeers means that clients of other users could not be told apart.
	ErrNoPeers = errors.New("every user of this machine could run commands here")
)

// Listener is a listener that knows what protects it.
type Listener struct {
	net.Listener
	addr  Address
	peers bool // clients must be processes of this user or of root
}

// Open listens. It refuses an address that the options do not protect.
func Open(a Address, o Options) (*Listener, error) {
	l := &Listener{addr: a}
	if err := l.protect(o); err != nil {
		return nil, fmt.Errorf("refusing to listen on %s: %w", a, err)
	}
	var err error
	if a.Scheme == "unix" {
		l.Listener, err = listenUnix(a.Path)
	} else if l.Listener, err = net.Listen("tcp", a.TCP.String()); err == nil {
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			l.addr.TCP = tcp.AddrPort() // with the port that the kernel chose
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a, err)
	}
	return l, nil
}

// protect decides how clients are told apart.
func (l *Listener) protect(o Options) error {
	switch {
	case l.addr.Scheme == "unix":
		l.peers = true
	case !l.addr.Encrypted() && !o.InsecurePlaintext:
		return ErrPlaintext
	case o.Token || o.InsecureNoAuth:
	case !l.addr.Local():
		return ErrNoAuth
	default:
		if err := peer.ProbeTCP(l.addr.TCP.Addr().String()); err != nil {
			return fmt.Errorf("%w: %w", ErrNoPeers, err)
		}
		l.peers = true
	}
	return nil
}

// URL returns the URL of the listener.
func (l *Listener) URL() string { return l.addr.String() }

type connKey struct{}

// ConnContext is for [http.Server]: it makes the user at the other end of a
// connection known to [Listener.Guard].
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if !l.peers {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, sync.OnceValue(func() error {
		_, err := peer.Check(c)
		return err
	}))
}

// Guard returns a handler that serves only the clients that the listener admits.
func (l *Listener) Guard(h http.Handler) http.Handler {
	if !l.peers {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check, ok := r.Context().Value(connKey{}).(func() error)
		if !ok {
			http.Error(w, "the server does not know the connection", http.StatusInternalServerError)
			return
		}
		if err := check(); err != nil {
			http.Error(w, err.Error()+"; a server with a token accepts other users: see spool exec-server --help", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
