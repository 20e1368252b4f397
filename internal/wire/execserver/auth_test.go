package execserver

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

// authAnswer returns the result of check for an Authorization header.
func authAnswer(a *Auth, authorization string) string {
	r := &http.Request{Header: make(http.Header)}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	status, text, ok := a.check(r)
	switch {
	case ok:
		return "ok"
	case status != http.StatusUnauthorized:
		return "wrong status"
	}
	return text
}

const (
	missingToken = "missing websocket bearer token"
	invalidToken = "invalid websocket bearer token"
)

func TestCapabilityToken(t *testing.T) {
	digest := sha256.Sum256([]byte("secret"))
	for name, o := range map[string]AuthOptions{
		"file":   {Mode: AuthCapabilityToken, TokenFile: secretFile(t, " secret\n", 0o600)},
		"digest": {Mode: AuthCapabilityToken, TokenSHA256: strings.ToUpper(hex.EncodeToString(digest[:]))},
	} {
		a, err := NewAuth(o)
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
			{"Bearer " + strings.Repeat("x", maxBearerToken+1), invalidToken},
		} {
			if got := authAnswer(a, tt.header); got != tt.want {
				t.Errorf("%s: %.40q: %s, want %s", name, tt.header, got, tt.want)
			}
		}
	}
}

func TestNoAuth(t *testing.T) {
	a, err := NewAuth(AuthOptions{})
	if err != nil || authAnswer(a, "") != "ok" || authAnswer(nil, "") != "ok" {
		t.Errorf("%v", err)
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

func newSignedAuth(t testing.TB, file string) *Auth {
	t.Helper()
	a, err := NewAuth(AuthOptions{Mode: AuthSignedBearerToken, SharedSecretFile: file, Issuer: "me", Audience: "spool"})
	if err != nil {
		t.Fatal(err)
	}
	a.now = func() time.Time { return time.Unix(1000, 0) }
	return a
}

func TestSignedBearerToken(t *testing.T) {
	a := newSignedAuth(t, secretFile(t, testSecret+"\n", 0o600))
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
	plain, err := NewAuth(AuthOptions{Mode: AuthSignedBearerToken, SharedSecretFile: secretFile(t, testSecret, 0o600), MaxClockSkew: new(time.Duration)})
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

func TestNewAuthErrors(t *testing.T) {
	good, empty := secretFile(t, testSecret, 0o600), secretFile(t, " \n", 0o600)
	second := time.Second
	negative := -second
	for _, tt := range []struct {
		want string
		o    AuthOptions
	}{
		{"unknown websocket auth mode", AuthOptions{Mode: "x"}},
		{"need the mode", AuthOptions{TokenFile: good}},
		{"need the mode", AuthOptions{MaxClockSkew: &second}},
		{"needs a token file or a token digest", AuthOptions{Mode: AuthCapabilityToken}},
		{"exclude each other", AuthOptions{Mode: AuthCapabilityToken, TokenFile: good, TokenSHA256: "ab"}},
		{"64 hexadecimal characters", AuthOptions{Mode: AuthCapabilityToken, TokenSHA256: "zz"}},
		{"must not be empty", AuthOptions{Mode: AuthCapabilityToken, TokenFile: empty}},
		{"no such file", AuthOptions{Mode: AuthCapabilityToken, TokenFile: good + "x"}},
		{"not capability-token", AuthOptions{Mode: AuthCapabilityToken, TokenFile: good, Issuer: "x"}},
		{"not signed-bearer-token", AuthOptions{Mode: AuthSignedBearerToken, SharedSecretFile: good, TokenFile: good}},
		{"needs a shared secret file", AuthOptions{Mode: AuthSignedBearerToken}},
		{"at least 32 bytes", AuthOptions{Mode: AuthSignedBearerToken, SharedSecretFile: secretFile(t, "short", 0o600)}},
		{"must not be negative", AuthOptions{Mode: AuthSignedBearerToken, SharedSecretFile: good, MaxClockSkew: &negative}},
	} {
		a, err := NewAuth(tt.o)
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
		for _, o := range []AuthOptions{
			{Mode: AuthCapabilityToken, TokenFile: name},
			{Mode: AuthSignedBearerToken, SharedSecretFile: name},
		} {
			if _, err := NewAuth(o); !errors.Is(err, privatedir.ErrNotPrivate) || !strings.Contains(err.Error(), "chmod 600") {
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
	a := newSignedAuth(f, name)
	f.Add("a.b.c")
	f.Add(token(`{"alg":"none"}`, `{"exp":1000,"iss":"me","aud":"spool"}`))
	f.Fuzz(func(t *testing.T, s string) {
		if err := a.verify(s); err == nil {
			t.Fatalf("%q is accepted", s)
		}
	})
}
