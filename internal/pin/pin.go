// Package pin compares the certificate of a server with a fingerprint that a user
// got from the server itself: sha256: and 64 hexadecimal digits.
package pin

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ErrOther is wrapped by the error of a server whose certificate has another
// fingerprint.
var ErrOther = errors.New("the server has another certificate")

const prefix = "sha256:"

// Of returns the fingerprint of a certificate in its binary form.
func Of(certificate []byte) string {
	return fmt.Sprintf("%s%x", prefix, sha256.Sum256(certificate))
}

// Check returns a function for [tls.Config.VerifyConnection] that accepts the
// certificate with a fingerprint and no other. The digits may have colons between
// them. The error says that the text is no fingerprint.
func Check(fingerprint string) (func(tls.ConnectionState) error, error) {
	digits, ok := strings.CutPrefix(fingerprint, prefix)
	want, err := hex.DecodeString(strings.ReplaceAll(digits, ":", ""))
	if !ok || err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("fingerprint %q: it must be %s and 64 hexadecimal digits", fingerprint, prefix)
	}
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		raw := s.PeerCertificates[0].Raw
		if got := sha256.Sum256(raw); subtle.ConstantTimeCompare(got[:], want) != 1 {
			return fmt.Errorf("%w, %s: it is another server, or someone is in between", ErrOther, Of(raw))
		}
		return nil
	}, nil
}
