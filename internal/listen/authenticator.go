package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/peer"
)

type connKey struct{}

// ConnContext is for [http.Server]: it makes the user at the other end of a
// connection known to the authenticator of the listener.
func (l *Listener) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if !l.peers {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, sync.OnceValue(func() error {
		_, err := peer.Check(c)
		return err
	}))
}

// Authenticator returns the authenticator of the requests of this listener: what
// it knows of the connection comes first, then next, which may be nil. It returns
// nil if every client is admitted.
func (l *Listener) Authenticator(next access.Authenticator) access.Authenticator {
	if !l.peers && !l.certs {
		return next
	}
	return &authenticator{l, next}
}

// authenticator admits the clients that a listener knows without a token.
type authenticator struct {
	l    *Listener
	next access.Authenticator
}

var errUnknownConn = errors.New("the context of the request is not that of a connection of the listener")

// Authenticate implements [access.Authenticator]. Processes of this user and of
// root are the owner of the machine. A client with a certificate is the subject
// that the certificate names.
func (a *authenticator) Authenticate(r *http.Request) (*access.Subject, error) {
	if a.l.peers {
		if !namesThisMachine(r.Host) {
			return nil, &access.Refusal{Status: http.StatusForbidden, Text: fmt.Sprintf("%q is not a name of this server: use its IP address or localhost", r.Host)}
		}
		check, ok := r.Context().Value(connKey{}).(func() error)
		if !ok {
			return nil, &access.Refusal{Status: http.StatusInternalServerError, Text: "authentication failed", Err: errUnknownConn}
		}
		if err := check(); err != nil {
			text := err.Error() + "; a server with a token accepts other users: see spool exec-server --help"
			return nil, &access.Refusal{Status: http.StatusForbidden, Text: text}
		}
	}
	if a.next != nil {
		return a.next.Authenticate(r)
	}
	if a.l.certs {
		return certified(r)
	}
	return access.Owner(), nil
}

// namesThisMachine reports whether a Host header is an IP address or localhost. A
// page in a browser of this user can have a host name of its own resolve to
// loopback, and then connects as this user.
func namesThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// certified returns the subject that the certificate of a client names.
func certified(r *http.Request) (*access.Subject, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, &access.Refusal{Status: http.StatusForbidden, Text: "a client needs a certificate"}
	}
	cert := r.TLS.VerifiedChains[0][0]
	name := cert.Subject.CommonName
	if err := access.CheckName(name); err != nil {
		return nil, &access.Refusal{Status: http.StatusForbidden, Text: "the certificate has no common name that can be the name of a subject"}
	}
	return &access.Subject{
		Name: name, Scopes: append(access.DefaultScopes(), access.FilesOf("/")), Expires: cert.NotAfter,
	}, nil
}

// Valid implements [access.Authenticator].
func (a *authenticator) Valid(s *access.Subject) error {
	if a.next != nil {
		return a.next.Valid(s)
	}
	return nil // the server ends connections at their expiry
}
