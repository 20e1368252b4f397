package access

import (
	"errors"
	"net/http"
)

// Either returns an authenticator that admits what one of two admits. The tokens of
// each mean nothing to the other.
func Either(first, second Authenticator) Authenticator { return either{first, second} }

type either struct{ first, second Authenticator }

// Authenticate implements [Authenticator].
func (e either) Authenticate(r *http.Request) (*Subject, error) {
	s, err := e.first.Authenticate(r)
	var refusal *Refusal
	if err == nil || errors.As(err, &refusal) && refusal.Err != nil {
		return s, err
	}
	s, err = e.second.Authenticate(r)
	if err != nil && refusal != nil && refusal.Expired { // what the client wants to know
		return nil, refusal
	}
	return s, err
}

// Valid implements [Authenticator].
func (e either) Valid(s *Subject) error {
	if err := e.first.Valid(s); err != nil {
		return err
	}
	return e.second.Valid(s)
}
