package access

import "net/http"

// SignIn is how a page becomes a subject.
type SignIn struct {
	Codes    *Codes
	Sessions *Sessions
	// Tokens are what a page may present instead of a code.
	Tokens Authenticator
	// File is the token file, and Shares that of shares; nil without.
	File, Shares *Tokens
}

// ByCode returns the subject of a one-time code, which is the owner. The error is a
// [*Refusal].
func (s *SignIn) ByCode(text string) (*Subject, error) {
	if err := s.Codes.use(text); err != nil {
		return nil, err
	}
	return Owner(), nil
}

// ByToken returns the subject of a token. The error is a [*Refusal].
func (s *SignIn) ByToken(r *http.Request, text string) (*Subject, error) {
	if text == "" {
		return nil, errMissing
	}
	bare := &http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}, RemoteAddr: r.RemoteAddr}
	return s.Tokens.Authenticate(bare.WithContext(r.Context()))
}
