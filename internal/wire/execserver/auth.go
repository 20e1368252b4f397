package execserver

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
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/privatedir"
)

// Authentication modes.
const (
	// AuthCapabilityToken admits clients that present one secret token.
	AuthCapabilityToken = "capability-token"
	// AuthSignedBearerToken admits clients that present a token (JWT, HS256)
	// signed with a shared secret.
	AuthSignedBearerToken = "signed-bearer-token"
)

const (
	// DefaultClockSkew is the clock difference that a check of a signed token
	// tolerates.
	DefaultClockSkew = 30 * time.Second

	minSharedSecret = 32      // bytes
	maxSecretFile   = 1 << 20 // bytes
	maxBearerToken  = 16 << 10
)

// AuthOptions configure which clients may connect.
type AuthOptions struct {
	Mode string // empty admits every client; the other fields must then be empty

	// For AuthCapabilityToken, one of:
	TokenFile   string // holds the token; surrounding space is ignored
	TokenSHA256 string // the token's digest in hexadecimal

	// For AuthSignedBearerToken:
	SharedSecretFile string         // holds the key, 32 bytes or more; surrounding space is ignored
	Issuer           string         // if set, the required "iss"
	Audience         string         // if set, "aud" must be or contain it
	MaxClockSkew     *time.Duration // nil means DefaultClockSkew
}

// Auth checks the bearer token of a request. It is safe for concurrent use.
type Auth struct {
	mode     string
	digest   [sha256.Size]byte // of the capability token
	secret   []byte
	issuer   string
	audience string
	skew     time.Duration
	now      func() time.Time
}

// NewAuth reads the secrets that the options name. It fails on contradictory
// options instead of admitting clients by mistake.
func NewAuth(o AuthOptions) (*Auth, error) {
	a := &Auth{mode: o.Mode, issuer: o.Issuer, audience: o.Audience, skew: DefaultClockSkew, now: time.Now}
	capability := o.TokenFile != "" || o.TokenSHA256 != ""
	signed := o.SharedSecretFile != "" || o.Issuer != "" || o.Audience != "" || o.MaxClockSkew != nil
	switch o.Mode {
	case "":
		if capability || signed {
			return nil, fmt.Errorf("websocket auth options need the mode %s or %s", AuthCapabilityToken, AuthSignedBearerToken)
		}
		return a, nil
	case AuthCapabilityToken:
		if signed {
			return nil, fmt.Errorf("shared secret, issuer, audience and clock skew need the auth mode %s, not %s", AuthSignedBearerToken, o.Mode)
		}
		if err := a.readToken(o); err != nil {
			return nil, err
		}
		return a, nil
	case AuthSignedBearerToken:
		if capability {
			return nil, fmt.Errorf("token file and token digest need the auth mode %s, not %s", AuthCapabilityToken, o.Mode)
		}
		if err := a.readSharedSecret(o); err != nil {
			return nil, err
		}
		return a, nil
	}
	return nil, fmt.Errorf("unknown websocket auth mode %q: it must be %s or %s", o.Mode, AuthCapabilityToken, AuthSignedBearerToken)
}

func (a *Auth) readToken(o AuthOptions) error {
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

func (a *Auth) readSharedSecret(o AuthOptions) error {
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

// check reports whether the request is authorized, and otherwise the status and
// text of the answer.
func (a *Auth) check(r *http.Request) (status int, text string, ok bool) {
	if a == nil || a.mode == "" {
		return 0, "", true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, "missing websocket bearer token", false
	}
	if len(token) <= maxBearerToken {
		switch a.mode {
		case AuthCapabilityToken:
			digest := sha256.Sum256([]byte(token))
			ok = subtle.ConstantTimeCompare(digest[:], a.digest[:]) == 1
		case AuthSignedBearerToken:
			ok = a.verify(token) == nil
		}
	}
	if !ok {
		return http.StatusUnauthorized, "invalid websocket bearer token", false
	}
	return 0, "", true
}

// verify checks a JSON Web Token: its signature first, then its claims.
func (a *Auth) verify(token string) error {
	signedPart, signature, ok := cutLast(token, ".")
	if !ok {
		return errors.New("token has no signature")
	}
	head, payload, ok := strings.Cut(signedPart, ".")
	if !ok || strings.Contains(payload, ".") {
		return errors.New("token does not have three parts")
	}
	var header struct {
		Alg  string          `json:"alg"`
		Crit json.RawMessage `json:"crit"`
	}
	if err := decodePart(head, &header); err != nil {
		return fmt.Errorf("decode header: %w", err)
	}
	if header.Alg != "HS256" || header.Crit != nil {
		return errors.New("token is not plain HS256")
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil {
		return fmt.Errorf("decode signature: %w", err)
	}
	mac := hmac.New(sha256.New, a.secret)
	mac.Write([]byte(signedPart))
	if !hmac.Equal(got, mac.Sum(nil)) {
		return errors.New("signature does not match")
	}
	var c claims
	if err := decodePart(payload, &c); err != nil {
		return fmt.Errorf("decode claims: %w", err)
	}
	return a.checkClaims(c)
}

// claims are the claims of a token. Times are seconds since 1970.
type claims struct {
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

func (a *Auth) checkClaims(c claims) error {
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
