package access

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// pageRequest is a request of a page with these credentials, to a server on a port.
func pageRequest(host, cookie, key string) *http.Request {
	r := &http.Request{Host: host, Header: http.Header{}}
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: CookieName(r), Value: cookie})
	}
	if key != "" {
		r.Header.Set(KeyHeader, key)
	}
	return r
}

// TestSessionNeedsBothHalves tries every combination of credentials of two pages.
func TestSessionNeedsBothHalves(t *testing.T) {
	dir := t.TempDir()
	sessions, err := OpenSessions(filepath.Join(dir, SessionFileName))
	if err != nil {
		t.Fatal(err)
	}
	const host = "127.0.0.1:7766"
	_, cookie, key, err := sessions.Begin(Owner(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	_, otherCookie, otherKey, err := sessions.Begin(Owner(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	id, secret, _ := strings.Cut(cookie, ".")
	cookies := map[string]string{
		"none": "", "good": cookie, "other": otherCookie, "id alone": id, "secret alone": "." + secret, "wrong secret": id + ".x" + secret[1:],
		"unknown id": "00000000." + secret, "key": id + "." + key, "empty": ".",
	}
	keys := map[string]string{"none": "", "good": key, "other": otherKey, "secret": secret, "short": key[1:], "long": key + "x"}
	for cookieName, cookie := range cookies {
		for keyName, key := range keys {
			_, err := sessions.Authenticate(pageRequest(host, cookie, key))
			good := cookieName == "good" && keyName == "good" || cookieName == "other" && keyName == "other"
			var refusal *Refusal
			if (err == nil) != good || err != nil && (!errors.As(err, &refusal) || refusal.Status != http.StatusUnauthorized) {
				t.Errorf("cookie %s, key %s: %v", cookieName, keyName, err)
			}
		}
	}
	good := pageRequest(host, cookie, key)
	good.Header.Set("Authorization", "Bearer wrong")
	if _, err := sessions.Authenticate(good); err == nil {
		t.Error("a wrong token passes with a session beside it")
	}
	if _, err := sessions.Authenticate(pageRequest("127.0.0.1:7767", cookie, key)); err != nil {
		t.Errorf("a session of a server on another port of this state directory: %v", err)
	}
	elsewhere := pageRequest(host, cookie, key)
	elsewhere.Host = "127.0.0.1:7767"
	if _, err := sessions.Authenticate(elsewhere); err == nil {
		t.Error("the cookie of another port passes")
	}
	// A service on another port may set cookies of our name.
	tossed := pageRequest(host, "", key)
	for range maxCookies - 1 {
		tossed.AddCookie(&http.Cookie{Name: CookieName(tossed), Value: "00000000.x"})
	}
	tossed.AddCookie(&http.Cookie{Name: CookieName(tossed), Value: cookie})
	if _, err := sessions.Authenticate(tossed); err != nil {
		t.Errorf("beside cookies of others: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, SessionFileName))
	if err != nil || strings.Contains(string(b), secret) || strings.Contains(string(b), key) {
		t.Errorf("the file has a secret, or %v", err)
	}
}

// TestSessionOfAWebSocket checks where a page puts its key.
func TestSessionOfAWebSocket(t *testing.T) {
	for _, tt := range []struct {
		header http.Header
		want   string
	}{
		{http.Header{}, ""},
		{http.Header{"Spool-Key": {"k"}}, "k"},
		{http.Header{"Sec-Websocket-Protocol": {"spool.v1, spool-key.k"}}, ""},
		{http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"spool.v1, spool-key.k"}}, "k"},
		{http.Header{"Upgrade": {"WebSocket"}, "Sec-Websocket-Protocol": {"spool.v1", "spool-key.k"}}, "k"},
		{http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"spool.v1"}}, ""},
	} {
		if got := PageKey(&http.Request{Header: tt.header}); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.header, got, tt.want)
		}
	}
}

// TestSessionLife checks that a session slides, survives a restart, and ends by
// itself, with its token, or when it is revoked.
func TestSessionLife(t *testing.T) {
	dir := t.TempDir()
	path, tokenPath := filepath.Join(dir, SessionFileName), filepath.Join(dir, TokenFileName)
	tokens, err := AwaitTokens(tokenPath)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	open := func() *Sessions {
		s, err := OpenSessions(path, tokens)
		if err != nil {
			t.Fatal(err)
		}
		s.now = func() time.Time { return now }
		return s
	}
	sessions := open()
	secret := create(t, tokenPath, Token{Name: "alice", Scopes: Scopes{Read}})
	alice, err := tokens.Authenticate(request(secret))
	if err != nil {
		t.Fatal(err)
	}
	_, ownCookie, ownKey, err := sessions.Begin(Owner(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	session, cookie, key, err := sessions.Begin(alice, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := sessions.Begin(&Subject{Name: "carol"}, ""); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("a session without a token: %v", err)
	}
	enter := func(what, cookie, key string, expired bool) *Subject {
		t.Helper()
		s, err := sessions.Authenticate(pageRequest("localhost:7766", cookie, key))
		var refusal *Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Expired != expired) {
			t.Errorf("%s: %v", what, err)
		}
		return s
	}
	for range 3 { // it slides
		now = now.Add(SessionFor - time.Hour)
		if s := enter("used", cookie, key, false); s == nil || s.Name != "alice" || s.Session() != session.ID || !s.Scopes.Has(Read) || s.Scopes.Has(Start) {
			t.Fatalf("a used session is %+v", s)
		}
	}
	if s := enter("unused", ownCookie, ownKey, true); s != nil {
		t.Error("a session lasts for ever")
	}
	sessions = open()
	s := enter("after a restart", cookie, key, false)
	if s == nil || sessions.Valid(s) != nil {
		t.Fatal("a session did not survive a restart")
	}
	other := open() // of another process
	if err := RevokeSession(path, session.ID); err != nil {
		t.Fatal(err)
	}
	if err := RevokeSession(path, session.ID); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	for name, in := range map[string]*Sessions{"this": sessions, "another": other} {
		if err := in.Valid(s); !errors.Is(err, spool.ErrDenied) {
			t.Errorf("%s process: a revoked session: %v", name, err)
		}
	}
	if enter("revoked", cookie, key, false) != nil {
		t.Error("a revoked session passes")
	}
	if _, cookie, key, err = sessions.Begin(alice, ""); err != nil {
		t.Fatal(err)
	}
	s = enter("again", cookie, key, false)
	if _, err := RevokeToken(tokenPath, "alice"); err != nil {
		t.Fatal(err)
	}
	if enter("of a revoked token", cookie, key, true) != nil || Either(sessions, tokens).Valid(s) == nil {
		t.Error("a session outlives its token")
	}
}

// TestSessionsAreBounded checks that a session that was not used for long makes room.
func TestSessionsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), SessionFileName)
	now := time.Now()
	var all []Session
	for i := range MaxSessions {
		all = append(all, Session{ID: randomText(tokenIDSize), SHA256: digestOf("a"), KeySHA256: digestOf("b"), Created: now, Seen: now.Add(time.Duration(i) * time.Second)})
	}
	if err := changeSessions(path, func([]Session) ([]Session, error) { return all, nil }); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSessions(path)
	if err != nil {
		t.Fatal(err)
	}
	session, _, _, err := s.Begin(Owner(), "")
	if err != nil {
		t.Fatal(err)
	}
	left, err := ListSessions(path)
	if err != nil || len(left) != MaxSessions || left[0].ID != all[1].ID || left[MaxSessions-1].ID != session.ID {
		t.Errorf("%d sessions are left, %v", len(left), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSessions(path); err == nil {
		t.Error("a file that others can read is accepted")
	}
}

// TestCookie checks the attributes of the cookie, with and without TLS.
func TestCookie(t *testing.T) {
	for _, tt := range []struct {
		url, value, want string
	}{
		{"http://127.0.0.1:7766/", "x", "spool_7766=x; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"},
		{"http://spool.example.com/", "x", "spool_80=x; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"},
		{"https://spool.example.com/", "x", "__Host-spool_443=x; Path=/; Max-Age=2592000; HttpOnly; Secure; SameSite=Strict"},
		{"https://spool.example.com:8443/", "", "__Host-spool_8443=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict"},
	} {
		if got := Cookie(requestTo(t, tt.url), tt.value).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.url, got, tt.want)
		}
	}
}
