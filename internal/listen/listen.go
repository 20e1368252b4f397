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
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spool-run/spool/internal/peer"
)

// Options configure a listener.
type Options struct {
	// TLS is for wss. If it asks for certificates of clients, they need no
	// token.
	TLS *tls.Config
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
	// ErrNoCertificate means that wss has no certificate.
	ErrNoCertificate = errors.New("TLS needs a certificate")
	// ErrNoAuth means that clients could not be told apart.
	ErrNoAuth = errors.New("every client that can reach it could run commands here")
	// ErrNoPeers means that clients of other users could not be told apart.
	ErrNoPeers = errors.New("every user of this machine could run commands here")
)

// probeTCP is replaced by tests.
var probeTCP = peer.ProbeTCP

// Listener is a listener that knows what protects it.
type Listener struct {
	net.Listener
	addr  Address
	peers bool // clients must be processes of this user or of root
	certs bool // clients must have a certificate
}

// cause returns what the kernel said, without the steps that package net adds.
func cause(err error) error {
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}

// Open listens. It refuses an address that the options do not protect.
func Open(a Address, o Options) (*Listener, error) {
	l := &Listener{addr: a}
	if err := l.protect(o); err != nil {
		return nil, fmt.Errorf("refusing to listen on %s: %w", a.place(), err)
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
		return nil, fmt.Errorf("listen on %s: %w", a.place(), cause(err))
	}
	if a.Scheme == "wss" {
		l.Listener = tls.NewListener(l.Listener, o.TLS)
	}
	return l, nil
}

// protect decides how clients are told apart.
func (l *Listener) protect(o Options) error {
	l.certs = o.TLS != nil && o.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	switch {
	case l.addr.Scheme == "unix":
		l.peers = true
	case l.addr.Scheme == "wss" && (o.TLS == nil || len(o.TLS.Certificates) == 0):
		return ErrNoCertificate
	case !l.addr.Encrypted() && !o.InsecurePlaintext:
		return ErrPlaintext
	case o.Token || o.InsecureNoAuth || l.certs:
	case !l.addr.Local():
		return ErrNoAuth
	default:
		if err := probeTCP(l.addr.TCP.Addr().String()); err != nil {
			return fmt.Errorf("%w: %w", ErrNoPeers, err)
		}
		l.peers = true
	}
	return nil
}

// URL returns the URL of the listener.
func (l *Listener) URL() string { return l.addr.String() }

// ClientURL returns the URL for clients: that of the listener, with the name of
// this machine if it listens on all addresses.
func (l *Listener) ClientURL() string {
	host, err := os.Hostname()
	if l.addr.Scheme == "unix" || !l.addr.TCP.Addr().IsUnspecified() || err != nil {
		return l.URL()
	}
	return l.addr.Scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(l.addr.TCP.Port())))
}
