package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/privatedir"
)

// Modes of [BearerOptions].
const (
	// ModeCapabilityToken admits clients that present one secret token.
	ModeCapabilityToken = "capability-token"
	// ModeSignedBearerToken admits clients that present a token (JWT, HS256)
	// signed with a shared secret.
	ModeSignedBearerToken = "signed-bearer-token"
)

const (
	// DefaultClockSkew is the clock difference that a check of a signed token
	// tolerates.
	DefaultClockSkew = 30 * time.Second

	minSharedSecret = 32      // bytes
	maxSecretFile   = 1 << 20 // bytes
)

// BearerOptions configure [NewBearer].
type BearerOptions struct {
	Mode string // empty means none; the other fields must then be empty

	// For ModeCapabilityToken, one of:
	TokenFile   string // holds the token; surrounding space is ignored
	TokenSHA256 string // the token's digest in hexadecimal

	// For ModeSignedBearerToken:
	SharedSecretFile string         // holds the key, 32 bytes or more; surrounding space is ignored
	Issuer           string         // if set, the required "iss"
	Audience         string         // if set, "aud" must be or contain it
	MaxClockSkew     *time.Duration // nil means DefaultClockSkew
}

// Bearer is the [Authenticator] of the two modes that the codex exec-server
// has. A capability token makes its client the owner. A signed token makes it the
// subject that its claim "sub" names, with all scopes but admin, and without the
// claim the owner.
type Bearer struct {
	mode     string
	digest   [sha256.Size]byte // of the capability token
	secret   []byte
	issuer   string
	audience string
	skew     time.Duration
	now      func() time.Time
}

// NewBearer reads the secrets that the options name. It returns nil if they name
// no mode, and fails on contradictory options instead of admitting clients by
// mistake.
func NewBearer(o BearerOptions) (*Bearer, error) {
	a := &Bearer{mode: o.Mode, issuer: o.Issuer, audience: o.Audience, skew: DefaultClockSkew, now: time.Now}
	capability := o.TokenFile != "" || o.TokenSHA256 != ""
	signed := o.SharedSecretFile != "" || o.Issuer != "" || o.Audience != "" || o.MaxClockSkew != nil
	switch o.Mode {
	case "":
		if capability || signed {
			return nil, fmt.Errorf("websocket auth options need the mode %s or %s", ModeCapabilityToken, ModeSignedBearerToken)
		}
		return nil, nil
	case ModeCapabilityToken:
		if signed {
			return nil, fmt.Errorf("shared secret, issuer, audience and clock skew need the auth mode %s, not %s", ModeSignedBearerToken, o.Mode)
		}
		if err := a.readToken(o); err != nil {
			return nil, err
		}
		return a, nil
	case ModeSignedBearerToken:
		if capability {
			return nil, fmt.Errorf("token file and token digest need the auth mode %s, not %s", ModeCapabilityToken, o.Mode)
		}
		if err := a.readSharedSecret(o); err != nil {
			return nil, err
		}
		return a, nil
	}
	return nil, fmt.Errorf("unknown websocket auth mode %q: it must be %s or %s", o.Mode, ModeCapabilityToken, ModeSignedBearerToken)
}

func (a *Bearer) readToken(o BearerOptions) error {
	switch {
	case o.TokenFile != "" && o.TokenSHA256 != "":
		return errors.New("token file and token digest exclude each other")
	case o.TokenFile != "":
		token, err := readSecret(o.TokenFile)
		if err != nil {
			return err
		}
		a.digest = sha256.Sum256(token)
	case o.TokenSHA256 != "":
		digest, err := hex.DecodeString(strings.TrimSpace(o.TokenSHA256))
		if err != nil || len(digest) != len(a.digest) {
			return errors.New("token digest must be a SHA-256 digest of 64 hexadecimal characters")
		}
		copy(a.digest[:], digest)
	default:
		return fmt.Errorf("auth mode %s needs a token file or a token digest", o.Mode)
	}
	return nil
}

func (a *Bearer) readSharedSecret(o BearerOptions) error {
	if o.SharedSecretFile == "" {
		return fmt.Errorf("auth mode %s needs a shared secret file", o.Mode)
	}
	if o.MaxClockSkew != nil {
		a.skew = *o.MaxClockSkew
	}
	if a.skew < 0 {
		return errors.New("clock skew must not be negative")
	}
	secret, err := readSecret(o.SharedSecretFile)
	if err != nil {
		return err
	}
	if len(secret) < minSharedSecret {
		return fmt.Errorf("shared secret in %s must be at least %d bytes", o.SharedSecretFile, minSharedSecret)
	}
	a.secret = secret
	return nil
}

// readSecret reads a file that holds one secret.
func readSecret(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read websocket auth secret: %w", err)
	}
	if err := privatedir.CheckSecret(name, info); err != nil {
		return nil, fmt.Errorf("read websocket auth secret: %w", err)
	}
	if info.Size() > maxSecretFile {
		return nil, fmt.Errorf("websocket auth secret %s is larger than %d bytes", name, maxSecretFile)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read websocket auth secret: %w", err)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, fmt.Errorf("websocket auth secret %s must not be empty", name)
	}
	return b, nil
}

// Authenticate implements [Authenticator].
func (a *Bearer) Authenticate(r *http.Request) (*Subject, error) {
	token, err := bearer(r)
	if err != nil {
		return nil, err
	}
	if a.mode == ModeCapabilityToken {
		digest := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(digest[:], a.digest[:]) != 1 {
			return nil, errInvalid
		}
		return Owner(), nil
	}
	s, err := a.verify(token)
	if err != nil {
		return nil, errInvalid
	}
	return s, nil
}

// Valid implements [Authenticator].
func (a *Bearer) Valid(s *Subject) error { return s.expired(a.now()) }

// verify checks a JSON Web Token: its signature first, then its claims.
func (a *Bearer) verify(token string) (*Subject, error) {
	signedPart, signature, ok := cutLast(token, ".")
	if !ok {
		return nil, errors.New("token has no signature")
	}
	head, payload, ok := strings.Cut(signedPart, ".")
	if !ok || strings.Contains(payload, ".") {
		return nil, errors.New("token does not have three parts")
	}
	var header struct {
		Alg  string          `json:"alg"`
		Crit json.RawMessage `json:"crit"`
	}
	if err := decodePart(head, &header); err != nil {
		return nil, fmt.Errorf("decode header: %w", err)
	}
	if header.Alg != "HS256" || header.Crit != nil {
		return nil, errors.New("token is not plain HS256")
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil {
		return nil, fmt.Errorf("decode signature: %w", err)
	}
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte(signedPart))
	if !hmac.Equal(got, mac.Sum(nil)) {
		return nil, errors.New("signature does not match")
	}
	var c claims
	if err := decodePart(payload, &c); err != nil {
		return nil, fmt.Errorf("decode claims: %w", err)
	}
	if err := a.checkClaims(c); err != nil {
		return nil, err
	}
	return a.subject(c)
}

// claims are the claims of a token. Times are seconds since 1970.
type claims struct {
	Sub *string   `json:"sub"`
	Exp *float64  `json:"exp"`
	Nbf *float64  `json:"nbf"`
	Iss *string   `json:"iss"`
	Aud audiences `json:"aud"`
}

// audiences is one string or a list of them.
type audiences []string

func (a *audiences) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

func (a *Bearer) checkClaims(c claims) error {
	now, skew := float64(a.now().UnixNano())/1e9, a.skew.Seconds()
	switch {
	case c.Exp == nil:
		return errors.New("token has no expiry")
	case now > *c.Exp+skew:
		return errors.New("token has expired")
	case c.Nbf != nil && now < *c.Nbf-skew:
		return errors.New("token is not valid yet")
	case a.issuer != "" && (c.Iss == nil || *c.Iss != a.issuer):
		return errors.New("token has another issuer")
	case a.audience != "" && !slices.Contains(c.Aud, a.audience):
		return errors.New("token is for another audience")
	}
	return nil
}

// subject returns the subject of a token whose claims hold.
func (a *Bearer) subject(c claims) (*Subject, error) {
	s := Owner()
	if c.Sub != nil {
		if err := CheckName(*c.Sub); err != nil {
			return nil, err
		}
		s = &Subject{Name: *c.Sub, Scopes: append(DefaultScopes(), FilesOf("/"))}
	}
	// A number may be far beyond what a time can be.
	const latest = float64(1 << 40)
	seconds, fraction := math.Modf(min(*c.Exp, latest))
	s.Expires = time.Unix(int64(seconds), int64(fraction*1e9)).Add(a.skew)
	return s, nil
}

func decodePart(part string, v any) error {
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
