package access

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// Authenticator finds out who sends a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the subject of a request. The error is a
	// [*Refusal].
	Authenticate(r *http.Request) (*Subject, error)
	// Valid returns nil as long as the subject may keep its connection, and
	// an error once its token was revoked or has expired.
	Valid(s *Subject) error
}

// Refusal is the answer to a request without a valid token.
type Refusal struct {
	Status int
	Text   string // for the client
	// RetryAfter is set if the client should wait before the next attempt.
	RetryAfter time.Duration
	// Err is the cause, for the log of the server; nil if the client is.
	Err error

	repeated bool // its source failed often
}

func (r *Refusal) Error() string { return r.Text }

var (
	errMissing = &Refusal{Status: http.StatusUnauthorized, Text: "missing websocket bearer token"}
	errInvalid = &Refusal{Status: http.StatusUnauthorized, Text: "invalid websocket bearer token"}
)

// maxBearer is the length of the longest token that is looked at.
const maxBearer = 16 << 10

// bearer returns the token of a request.
func bearer(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errMissing
	}
	if len(token) > maxBearer {
		return "", errInvalid
	}
	return token, nil
}

// Peer is the process at the other end of a Unix socket, as the kernel says.
type Peer struct {
	UID int
	PID int // zero if unknown
}

type peerKey struct{}

// WithPeer returns a context of a connection over a Unix socket. A listener sets
// it as the base of its requests' contexts.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the peer of a connection over a Unix socket.
func PeerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// Peers admits the processes of one user over a Unix socket as the owner of the
// machine, and leaves every other request to the next authenticator.
type Peers struct {
	UID  int
	Next Authenticator // nil refuses all others
}

// Authenticate implements [Authenticator].
func (p *Peers) Authenticate(r *http.Request) (*Subject, error) {
	peer, ok := PeerOf(r.Context())
	switch {
	case ok && peer.UID == p.UID:
		return Owner(), nil
	case p.Next != nil:
		return p.Next.Authenticate(r)
	case ok:
		return nil, &Refusal{Status: http.StatusForbidden, Text: "this socket serves another user"}
	}
	return nil, errMissing
}

// Valid implements [Authenticator].
func (p *Peers) Valid(s *Subject) error {
	if p.Next == nil || s.IsOwner() && s.token == "" && s.Expires.IsZero() {
		return nil
	}
	return p.Next.Valid(s)
}
