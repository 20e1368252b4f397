package access

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/privatedir"
)

// create adds a token to a file and returns its secret.
func create(t *testing.T, path string, token Token) string {
	t.Helper()
	_, secret, err := CreateToken(path, token)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func request(token string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
}

func openTokens(t *testing.T, path string) *Tokens {
	t.Helper()
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", TokenFileName)
	expires := time.Now().Add(time.Hour).UTC().Round(time.Second)
	quotas := Quotas{Live: 3, DiskBytes: 100}
	secret := create(t, path, Token{Name: "ci", Scopes: Scopes{Read}, Expires: expires, Quotas: quotas})
	other := create(t, path, Token{Name: "ci-2", Subject: "ci"})
	tokens := openTokens(t, path)

	s, err := tokens.Authenticate(request(secret))
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "ci" || !s.Expires.Equal(expires) || s.Quotas != quotas || !s.Scopes.Has(Read) || s.Scopes.Has(Start) {
		t.Errorf("%+v", s)
	}
	if s, err := tokens.Authenticate(request(other)); err != nil || s.Name != "ci" || !s.Scopes.Has(Start) || s.Scopes.Has(Admin) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, wrong := range []string{
		secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), "x" + secret,
		secret[:len(TokenPrefix)+tokenIDSize] + other[len(TokenPrefix)+tokenIDSize:], // the secret of another id
		TokenPrefix + "unknown0_" + strings.Repeat("x", secretSize), "x", TokenPrefix, "_", strings.Repeat("0", 64),
	} {
		var refusal *Refusal
		if _, err := tokens.Authenticate(request(wrong)); !errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized || refusal.Text != invalidToken {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := tokens.Authenticate(&http.Request{Header: http.Header{}}); err == nil || err.Error() != missingToken {
		t.Errorf("no token: %v", err)
	}
}

// A token has a prefix that programs which look for secrets recognise, and 256
// random bits. The file has neither of them.
func TestTokenIsRandomAndNotStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	seen := make(map[string]bool)
	for i := range 20 {
		secret := create(t, path, Token{Name: string(rune('a' + i))})
		id, random, ok := strings.Cut(strings.TrimPrefix(secret, TokenPrefix), "_")
		if !strings.HasPrefix(secret, TokenPrefix) || !ok || len(id) != tokenIDSize || len(random) != secretSize || seen[random] || seen[id] {
			t.Fatalf("%q", secret)
		}
		seen[random], seen[id] = true, true
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), random) {
			t.Fatal("the file holds the secret")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestTokenFileIsReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	first := create(t, path, Token{Name: "first"})
	tokens := openTokens(t, path)
	s, err := tokens.Authenticate(request(first))
	if err != nil {
		t.Fatal(err)
	}
	second := create(t, path, Token{Name: "second"})
	if _, err := tokens.Authenticate(request(second)); err != nil {
		t.Errorf("a new token: %v", err)
	}
	if err := tokens.Valid(s); err != nil {
		t.Errorf("a token that stayed: %v", err)
	}
	if _, err := RevokeToken(path, "first"); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Valid(s); !errors.Is(err, spool.ErrDenied) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked token: %v", err)
	}
	if _, err := tokens.Authenticate(request(first)); err == nil {
		t.Error("a revoked token is accepted")
	}
	if _, err := RevokeToken(path, "first"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}

	// A file that cannot be read admits no one, and changes nothing for those who
	// are connected.
	s2, err := tokens.Authenticate(request(second))
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var refusal *Refusal
	if _, err := tokens.Authenticate(request(second)); !errors.As(err, &refusal) || refusal.Status != http.StatusServiceUnavailable || refusal.Err == nil {
		t.Errorf("a broken file: %v", err)
	}
	if err := tokens.Valid(s2); err != nil {
		t.Errorf("a broken file: %v", err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Authenticate(request(second)); err != nil {
		t.Errorf("a repaired file: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Valid(s2); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("a removed file: %v", err)
	}
}

// A token whose scopes were changed by hand is not used with the old ones.
func TestChangedTokenEndsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	secret := create(t, path, Token{Name: "a", Scopes: Scopes{Read, Start}})
	tokens := openTokens(t, path)
	s, err := tokens.Authenticate(request(secret))
	if err != nil {
		t.Fatal(err)
	}
	all, err := ListTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	all[0].Scopes = Scopes{Read}
	b, err := json.Marshal(tokenFile{all})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Valid(s); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("%v", err)
	}
}

func TestExpiredTokenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	now := time.Now()
	secret := create(t, path, Token{Name: "a", Expires: now.Add(time.Minute)})
	tokens := openTokens(t, path)
	s, err := tokens.Authenticate(request(secret))
	if err != nil {
		t.Fatal(err)
	}
	tokens.now = func() time.Time { return now.Add(2 * time.Minute) }
	if _, err := tokens.Authenticate(request(secret)); err == nil || err.Error() != invalidToken {
		t.Errorf("%v", err)
	}
	if err := tokens.Valid(s); !errors.Is(err, spool.ErrDenied) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("%v", err)
	}
}

func TestTokenFileErrors(t *testing.T) {
	digest := hex.EncodeToString(make([]byte, sha256.Size))
	entry := func(more string) string {
		return `{"tokens":[{"id":"abcdefgh","name":"a","sha256":"` + digest + `","scopes":["runs:read"],"created":"2026-01-01T00:00:00Z"` + more + `}]}`
	}
	write := func(contents string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), TokenFileName)
		if err := os.WriteFile(path, []byte(contents), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if _, err := OpenTokens(write(entry(""), 0o600)); err != nil {
		t.Fatal(err)
	}
	for want, contents := range map[string]string{
		"unknown":             entry(`,"run":["x"]`),
		"unknown scope":       strings.Replace(entry(""), "runs:read", "runs:raed", 1),
		"must not be neg":     entry(`,"quotas":{"live":-1}`),
		"64 hex":              strings.Replace(entry(""), digest, "00", 1),
		"8 characters":        strings.Replace(entry(""), "abcdefgh", "a", 1),
		"must not be empty":   strings.Replace(entry(""), `"name":"a"`, `"name":""`, 1),
		"two tokens":          strings.Replace(entry(""), `"tokens":[`, `"tokens":[`+entry("")[len(`{"tokens":[`):len(entry(""))-2]+",", 1),
		"token file":          "x",
		"absolute directory":  strings.Replace(entry(""), "runs:read", "files:x", 1),
		"printable character": strings.Replace(entry(""), `"name":"a"`, `"name":"a\n"`, 1),
	} {
		if _, err := OpenTokens(write(contents, 0o600)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, mode := range []os.FileMode{0o644, 0o640, 0o604, 0o602} {
		if _, err := OpenTokens(write(entry(""), mode)); !errors.Is(err, privatedir.ErrNotPrivate) {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	if _, err := OpenTokens(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := write(entry(""), 0o600)
	if _, _, err := CreateToken(path, Token{Name: "a"}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a taken name: %v", err)
	}
	if _, _, err := CreateToken(path, Token{}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

func TestScopes(t *testing.T) {
	s := Scopes{Read, StartOf("process"), FilesOf("/a"), FilesOf("/b")}
	for scope, want := range map[Scope]bool{Read: true, Start: false, StartOf("process"): true, StartOf("kernel"): false, Control: false, Admin: false} {
		if s.Has(scope) != want {
			t.Errorf("%s: %v", scope, !want)
		}
		if err := s.Require(scope); (err == nil) != want || err != nil && !errors.Is(err, spool.ErrDenied) {
			t.Errorf("%s: %v", scope, err)
		}
	}
	if !(Scopes{Start}).Has(StartOf("kernel")) || !(Scopes{Admin}).Has(StartOf("kernel")) || !(Scopes{Admin}).Has(Control) {
		t.Error("a wider scope does not include a narrower one")
	}
	if r := s.Roots(); len(r) != 2 || r[0] != "/a" || r[1] != "/b" {
		t.Errorf("%q", r)
	}
	for _, text := range []string{"", "runs", "runs:start:", "files:", "files:rel", "admin:x", "Admin"} {
		if _, err := ParseScope(text); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s, err := ParseScope("files:/a/../b/"); err != nil || s != FilesOf("/b") {
		t.Errorf("%q, %v", s, err)
	}
}
