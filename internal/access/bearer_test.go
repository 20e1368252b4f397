package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/privatedir"
)

const testSecret = "0123456789abcdef0123456789abcdef"

func secretFile(t *testing.T, contents string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(contents), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// authAnswer returns the answer to an Authorization header.
func authAnswer(a *Bearer, authorization string) string {
	r := &http.Request{Header: make(http.Header)}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	s, err := a.Authenticate(r)
	var refusal *Refusal
	switch {
	case err == nil && s != nil:
		return "ok"
	case !errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized:
		return "wrong status"
	}
	return refusal.Text
}

const (
	missingToken = "missing websocket bearer token"
	invalidToken = "invalid websocket bearer token"
)

func TestCapabilityToken(t *testing.T) {
	digest := sha256.Sum256([]byte("secret"))
	for name, o := range map[string]BearerOptions{
		"file":   {Mode: ModeCapabilityToken, TokenFile: secretFile(t, " secret\n", 0o600)},
		"digest": {Mode: ModeCapabilityToken, TokenSHA256: strings.ToUpper(hex.EncodeToString(digest[:]))},
	} {
		a, err := NewBearer(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, tt := range []struct{ header, want string }{
			{"", missingToken},
			{"Bearer", missingToken},
			{"Bearer ", missingToken},
			{"Basic secret", missingToken},
			{"Bearer secret", "ok"},
			{"bearer secret", "ok"},
			{"Bearer secret2", invalidToken},
			{"Bearer secre", invalidToken},
			{"Bearer " + strings.Repeat("x", maxBearer+1), invalidToken},
		} {
			if got := authAnswer(a, tt.header); got != tt.want {
				t.Errorf("%s: %.40q: %s, want %s", name, tt.header, got, tt.want)
			}
		}
	}
}

func TestNoMode(t *testing.T) {
	if a, err := NewBearer(BearerOptions{}); a != nil || err != nil {
		t.Errorf("%v, %v", a, err)
	}
}

// token signs a header and claims with the test secret.
func token(header, claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	signed := part([]byte(header)) + "." + part([]byte(claims))
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(signed))
	return signed + "." + part(mac.Sum(nil))
}

func newSigned(t testing.TB, file string) *Bearer {
	t.Helper()
	a, err := NewBearer(BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: file, Issuer: "me", Audience: "spool"})
	if err != nil {
		t.Fatal(err)
	}
	a.now = func() time.Time { return time.Unix(1000, 0) }
	return a
}

func TestSignedBearerToken(t *testing.T) {
	a := newSigned(t, secretFile(t, testSecret+"\n", 0o600))
	const hs256 = `{"alg":"HS256","typ":"JWT"}`
	good := token(hs256, `{"exp":1000,"iss":"me","aud":"spool"}`)
	for _, tt := range []struct{ name, token, want string }{
		{"good", good, "ok"},
		{"list of audiences", token(hs256, `{"exp":1000,"iss":"me","aud":["x","spool"]}`), "ok"},
		{"expired within the skew", token(hs256, `{"exp":980,"iss":"me","aud":"spool"}`), "ok"},
		{"expired", token(hs256, `{"exp":900,"iss":"me","aud":"spool"}`), invalidToken},
		{"no expiry", token(hs256, `{"iss":"me","aud":"spool"}`), invalidToken},
		{"null expiry", token(hs256, `{"exp":null,"iss":"me","aud":"spool"}`), invalidToken},
		{"text expiry", token(hs256, `{"exp":"9999","iss":"me","aud":"spool"}`), invalidToken},
		{"not before within the skew", token(hs256, `{"exp":2000,"nbf":1020,"iss":"me","aud":"spool"}`), "ok"},
		{"not yet", token(hs256, `{"exp":2000,"nbf":1100,"iss":"me","aud":"spool"}`), invalidToken},
		{"other issuer", token(hs256, `{"exp":1000,"iss":"you","aud":"spool"}`), invalidToken},
		{"no issuer", token(hs256, `{"exp":1000,"aud":"spool"}`), invalidToken},
		{"other audience", token(hs256, `{"exp":1000,"iss":"me","aud":"x"}`), invalidToken},
		{"no audience", token(hs256, `{"exp":1000,"iss":"me"}`), invalidToken},
		{"numeric audience", token(hs256, `{"exp":1000,"iss":"me","aud":7}`), invalidToken},
		{"no algorithm", token(`{}`, `{"exp":1000,"iss":"me","aud":"spool"}`), invalidToken},
		{"alg none", token(`{"alg":"none"}`, `{"exp":1000,"iss":"me","aud":"spool"}`), invalidToken},
		{"alg none, unsigned", strings.TrimRight(good[:strings.LastIndex(good, ".")+1], ""), invalidToken},
		{"other algorithm", token(`{"alg":"HS512"}`, `{"exp":1000,"iss":"me","aud":"spool"}`), invalidToken},
		{"critical extension", token(`{"alg":"HS256","crit":["x"]}`, `{"exp":1000,"iss":"me","aud":"spool"}`), invalidToken},
		{"tampered", strings.Replace(good, ".", ".e", 1), invalidToken},
		{"cut", good[:len(good)-1], invalidToken},
		{"four parts", good + ".x", invalidToken},
		{"two parts", "a.b", invalidToken},
		{"no parts", "a", invalidToken},
		{"not JSON", token("x", "y"), invalidToken},
	} {
		if got := authAnswer(a, "Bearer "+tt.token); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	plain, err := NewBearer(BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: secretFile(t, testSecret, 0o600), MaxClockSkew: new(time.Duration)})
	if err != nil {
		t.Fatal(err)
	}
	plain.now = a.now
	if got := authAnswer(plain, "Bearer "+token(hs256, `{"exp":1000}`)); got != "ok" {
		t.Errorf("issuer and audience are not configured: %s", got)
	}
	if got := authAnswer(plain, "Bearer "+token(hs256, `{"exp":999}`)); got != invalidToken {
		t.Errorf("no skew: %s", got)
	}
}

func TestNewBearerErrors(t *testing.T) {
	good, empty := secretFile(t, testSecret, 0o600), secretFile(t, " \n", 0o600)
	second := time.Second
	negative := -second
	for _, tt := range []struct {
		want string
		o    BearerOptions
	}{
		{"unknown websocket auth mode", BearerOptions{Mode: "x"}},
		{"need the mode", BearerOptions{TokenFile: good}},
		{"need the mode", BearerOptions{MaxClockSkew: &second}},
		{"needs a token file or a token digest", BearerOptions{Mode: ModeCapabilityToken}},
		{"exclude each other", BearerOptions{Mode: ModeCapabilityToken, TokenFile: good, TokenSHA256: "ab"}},
		{"64 hexadecimal characters", BearerOptions{Mode: ModeCapabilityToken, TokenSHA256: "zz"}},
		{"must not be empty", BearerOptions{Mode: ModeCapabilityToken, TokenFile: empty}},
		{"no such file", BearerOptions{Mode: ModeCapabilityToken, TokenFile: good + "x"}},
		{"not capability-token", BearerOptions{Mode: ModeCapabilityToken, TokenFile: good, Issuer: "x"}},
		{"not signed-bearer-token", BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: good, TokenFile: good}},
		{"needs a shared secret file", BearerOptions{Mode: ModeSignedBearerToken}},
		{"at least 32 bytes", BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: secretFile(t, "short", 0o600)}},
		{"must not be negative", BearerOptions{Mode: ModeSignedBearerToken, SharedSecretFile: good, MaxClockSkew: &negative}},
	} {
		a, err := NewBearer(tt.o)
		if a != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}

// TestReadableSecretsAreRefused checks that a secret which other users can read
// is not used.
func TestReadableSecretsAreRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o604, 0o640, 0o622} {
		name := secretFile(t, testSecret, 0o600)
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		for _, o := range []BearerOptions{
			{Mode: ModeCapabilityToken, TokenFile: name},
			{Mode: ModeSignedBearerToken, SharedSecretFile: name},
		} {
			if _, err := NewBearer(o); !errors.Is(err, privatedir.ErrNotPrivate) || !strings.Contains(err.Error(), "chmod 600") {
				t.Errorf("%s, mode %#o: %v", o.Mode, mode, err)
			}
		}
	}
}

func FuzzSignedBearerToken(f *testing.F) {
	name := filepath.Join(f.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(testSecret), 0o600); err != nil {
		f.Fatal(err)
	}
	a := newSigned(f, name)
	f.Add("a.b.c")
	f.Add(token(`{"alg":"none"}`, `{"exp":1000,"iss":"me","aud":"spool"}`))
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := a.verify(s); err == nil {
			t.Fatalf("%q is accepted", s)
		}
	})
}

// The claim "sub" of a signed token is the subject; its expiry is that of the
// token, with the skew that the check of the token allows.
func TestSignedTokenSubject(t *testing.T) {
	a := newSigned(t, secretFile(t, testSecret, 0o600))
	claims := func(more string) *http.Request {
		return request(token(`{"alg":"HS256"}`, `{"exp":1000,"iss":"me","aud":"spool"`+more+`}`))
	}
	s, err := a.Authenticate(claims(`,"sub":"auth0|alice"`))
	if err != nil || s.Name != "auth0|alice" || s.Scopes.Has(Admin) || !s.Scopes.Has(Start) || !s.Expires.Equal(time.Unix(1030, 0)) {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := a.Valid(s); err != nil {
		t.Error(err)
	}
	a.now = func() time.Time { return time.Unix(1031, 0) }
	if err := a.Valid(s); err == nil {
		t.Error("an expired token is valid")
	}
	a.now = func() time.Time { return time.Unix(1000, 0) }
	if s, err := a.Authenticate(claims("")); err != nil || !s.IsOwner() || !s.Expires.Equal(time.Unix(1030, 0)) {
		t.Errorf("no subject: %+v, %v", s, err)
	}
	for _, sub := range []string{`""`, `"a\nb"`, `7`, `"` + strings.Repeat("x", maxName+1) + `"`} {
		if s, err := a.Authenticate(claims(`,"sub":` + sub)); err == nil {
			t.Errorf("subject %s: %+v", sub, s)
		}
	}
}
