package access

import (
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

	// Expired says that the client was right once.
	Expired bool

	repeated bool // its source failed often
}

func (r *Refusal) Error() string { return r.Text }

var (
	errMissing = &Refusal{Status: http.StatusUnauthorized, Text: "missing websocket bearer token"}
	errInvalid = &Refusal{Status: http.StatusUnauthorized, Text: "invalid websocket bearer token"}
	errExpired = &Refusal{Status: http.StatusUnauthorized, Text: errInvalid.Text, Expired: true}
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
