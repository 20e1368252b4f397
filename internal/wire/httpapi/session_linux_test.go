package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// door is a server at which pages sign in.
type door struct {
	*rest
	dir     string
	codes   *access.Codes
	backend spool.Backend
}

const ownersToken = "0123456789abcdef"

// openDoor opens a server with the owner's token and a token file. Options may
// change the options.
func openDoor(t *testing.T, backend spool.Backend, options ...func(*httpapi.Options)) *door {
	t.Helper()
	d := &door{dir: t.TempDir(), codes: access.NewCodes(), backend: backend}
	file := filepath.Join(d.dir, "server-token")
	if err := os.WriteFile(file, []byte(ownersToken), 0o600); err != nil {
		t.Fatal(err)
	}
	owner, err := access.NewBearer(access.BearerOptions{Mode: access.ModeCapabilityToken, TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.AwaitTokens(d.tokens())
	if err != nil {
		t.Fatal(err)
	}
	shares, err := access.OpenShares(filepath.Join(d.dir, access.ShareFileName), tokens)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := access.OpenSessions(d.sessions(), tokens, shares)
	if err != nil {
		t.Fatal(err)
	}
	signIn := &access.SignIn{
		Codes: d.codes, Sessions: sessions, Tokens: access.Either(owner, access.Either(tokens, shares)), File: tokens, Shares: shares,
	}
	o := httpapi.Options{
		Backend: backend, Auth: access.Either(sessions, signIn.Tokens), SignIn: signIn, Gate: new(access.Gate), Version: "0",
		Limits: httpapi.Limits{Failures: 1000, FailuresTotal: 1000},
	}
	for _, set := range options {
		set(&o)
	}
	d.rest = serve(t, o)
	return d
}

func (d *door) tokens() string   { return filepath.Join(d.dir, access.TokenFileName) }
func (d *door) sessions() string { return filepath.Join(d.dir, access.SessionFileName) }

// credentials are what a request proves its subject with.
type credentials struct{ bearer, cookie, key, query string }

// do sends a request with a JSON body.
func (d *door) do(t *testing.T, method, path, body string, with credentials) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.url+path+with.query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if with.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+with.bearer)
	}
	if with.cookie != "" {
		r.AddCookie(&http.Cookie{Name: access.CookieName(r), Value: with.cookie})
	}
	if with.key != "" {
		r.Header.Set(access.KeyHeader, with.key)
	}
	resp, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ask sends a request, and returns the status and the code of a problem.
func (d *door) ask(t *testing.T, method, path, body string, with credentials, answer any) (status int, code string) {
	t.Helper()
	resp := d.do(t, method, path, body, with)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		var p httpapi.Problem
		if err := json.Unmarshal(b, &p); err != nil {
			t.Errorf("%s %s: the problem %q: %v", method, path, b, err)
		}
		return resp.StatusCode, p.Code
	}
	if answer != nil {
		if err := json.Unmarshal(b, answer); err != nil {
			t.Errorf("%s %s: the answer %q: %v", method, path, b, err)
		}
	}
	return resp.StatusCode, ""
}

// signIn signs in a page, and returns its credentials.
func (d *door) signIn(t *testing.T, body string) (credentials, httpapi.SessionInfo) {
	t.Helper()
	resp := d.do(t, "POST", "/v1/session", body, credentials{})
	var info httpapi.SessionInfo
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil || resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("sign in: %s, %v", resp.Status, err)
	}
	return credentials{cookie: resp.Cookies()[0].Value, key: info.Key}, info
}

// TestSignIn signs in pages with codes and tokens, and tries what must not work.
func TestSignIn(t *testing.T) {
	d := openDoor(t, openHost(t))
	_, alice, err := access.CreateToken(d.tokens(), access.Token{Name: "alice", Scopes: access.Scopes{access.Read}})
	if err != nil {
		t.Fatal(err)
	}
	code := d.codes.Make()
	page, info := d.signIn(t, `{"code":"`+code+`"}`)
	if info.Subject != "owner" || len(info.Key) != 43 || time.Until(info.Expires) < access.SessionFor-time.Hour || !info.Scopes.Has(access.Admin) {
		t.Errorf("signed in as %+v", info)
	}
	hers, info := d.signIn(t, `{"token":"`+alice+`"}`)
	if info.Subject != "alice" || info.Scopes.Has(access.Start) {
		t.Errorf("signed in as %+v", info)
	}
	for _, tt := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"replayed code", `{"code":"` + code + `"}`, 401, "unauthenticated"},
		{"wrong token", `{"token":"x"}`, 401, "unauthenticated"},
		{"a key", `{"token":"` + page.key + `"}`, 401, "unauthenticated"},
		{"nothing", `{}`, 400, "invalid"},
		{"both", `{"code":"x","token":"y"}`, 400, "invalid"},
		{"unknown member", `{"cod":"x"}`, 400, "unknown_member"},
	} {
		if status, code := d.ask(t, "POST", "/v1/session", tt.body, credentials{}, nil); status != tt.status || code != tt.code {
			t.Errorf("%s: %d %s", tt.name, status, code)
		}
	}
	resp := d.do(t, "GET", "/v1/session", "", hers)
	var who httpapi.SessionInfo
	if err := json.NewDecoder(resp.Body).Decode(&who); err != nil || who.Subject != "alice" || who.Key != "" || len(resp.Cookies()) != 1 || resp.Cookies()[0].Value != hers.cookie {
		t.Errorf("GET /v1/session: %+v, %v, cookies %v", who, err, resp.Cookies())
	}
	if status, code := d.ask(t, "DELETE", "/v1/session", "", credentials{bearer: ownersToken}, nil); status != 422 || code != "unsupported" {
		t.Errorf("DELETE /v1/session with a token: %d %s", status, code)
	}
	resp = d.do(t, "DELETE", "/v1/session", "", page)
	if resp.StatusCode != 204 || resp.Header.Get("Clear-Site-Data") != `"storage"` || len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("DELETE /v1/session: %s %v", resp.Status, resp.Header)
	}
	if status, code := d.ask(t, "GET", "/v1/session", "", page, nil); status != 401 || code != "unauthenticated" {
		t.Errorf("after signing out: %d %s", status, code)
	}
}

// TestCredentials has every combination of credentials meet reads and writes: only
// those that prove a subject start something.
func TestCredentials(t *testing.T) {
	h := openHost(t)
	d := openDoor(t, h)
	create := func(name string, expires time.Time, scopes ...access.Scope) string {
		_, secret, err := access.CreateToken(d.tokens(), access.Token{Name: name, Scopes: scopes, Expires: expires})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	reader := create("reader", time.Time{}, access.Read)
	expired := create("expired", time.Now().Add(-time.Hour), access.Read)
	revoked := create("revoked", time.Time{}, access.Read)
	ofRevoked, _ := d.signIn(t, `{"token":"`+revoked+`"}`)
	if _, err := access.RevokeToken(d.tokens(), "revoked"); err != nil {
		t.Fatal(err)
	}
	page, _ := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	other, _ := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	old, oldInfo := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	ended, endedInfo := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	if err := access.RevokeSession(d.sessions(), endedInfo.ID); err != nil {
		t.Fatal(err)
	}
	age(t, d.sessions(), oldInfo.ID)
	for name, tt := range map[string]struct {
		with        credentials
		read, write string // the code of the problem, or nothing
	}{
		"none":               {credentials{}, "unauthenticated", "unauthenticated"},
		"bearer":             {credentials{bearer: ownersToken}, "", ""},
		"bearer of reader":   {credentials{bearer: reader}, "", "forbidden"},
		"wrong bearer":       {credentials{bearer: "x"}, "unauthenticated", "unauthenticated"},
		"expired bearer":     {credentials{bearer: expired}, "expired", "expired"},
		"revoked bearer":     {credentials{bearer: revoked}, "unauthenticated", "unauthenticated"},
		"cookie only":        {credentials{cookie: page.cookie}, "unauthenticated", "unauthenticated"},
		"key only":           {credentials{key: page.key}, "unauthenticated", "unauthenticated"},
		"both":               {page, "", ""},
		"both, of two pages": {credentials{cookie: page.cookie, key: other.key}, "unauthenticated", "unauthenticated"},
		"both, wrong bearer": {credentials{bearer: "x", cookie: page.cookie, key: page.key}, "unauthenticated", "unauthenticated"},
		"key as bearer":      {credentials{bearer: page.key, cookie: page.cookie}, "unauthenticated", "unauthenticated"},
		"expired page":       {old, "expired", "expired"},
		"revoked page":       {ended, "unauthenticated", "unauthenticated"},
		"page of revoked":    {ofRevoked, "expired", "expired"},
		"token in the query": {credentials{query: "?token=" + ownersToken}, "unauthenticated", "unauthenticated"},
		"access_token query": {credentials{query: "?access_token=" + ownersToken}, "unauthenticated", "unauthenticated"},
		"key in the query":   {credentials{cookie: page.cookie, query: "?key=" + page.key}, "unauthenticated", "unauthenticated"},
	} {
		for _, row := range []struct{ method, path, body, want string }{
			{"GET", "/v1/runs", "", tt.read},
			{"HEAD", "/v1/runs", "", tt.read},
			{"GET", "/v1/session", "", tt.read},
			{"GET", "/v1/runs/none/events", "", orNotFound(tt.read)},
			{"POST", "/v1/runs", `{"argv":["/bin/true"],"labels":{"by":"` + name + `"}}`, tt.write},
			{"DELETE", "/v1/runs/none", "", orNotFound(tt.write)},
			{"POST", "/v1/runs/none/control", `{"op":"kill"}`, orNotFound(tt.write)},
		} {
			resp := d.do(t, row.method, row.path, row.body, tt.with)
			var p httpapi.Problem
			if resp.StatusCode >= 400 && row.method != "HEAD" {
				if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
					t.Errorf("%s: %s %s: %v", name, row.method, row.path, err)
				}
			}
			if (resp.StatusCode < 400) != (row.want == "") || row.method != "HEAD" && p.Code != row.want {
				t.Errorf("%s: %s %s: %s %q, want %q", name, row.method, row.path, resp.Status, p.Code, row.want)
			}
			if resp.StatusCode == 401 && resp.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: %s %s: no challenge", name, row.method, row.path)
			}
		}
	}
	for info, err := range h.List(t.Context(), spool.Filter{}) {
		if by := info.Labels["by"]; err != nil || by != "bearer" && by != "both" {
			t.Errorf("%q started %s, %v", by, info.ID, err)
		}
	}
}

func orNotFound(code string) string {
	if code == "" {
		return "not_found"
	}
	return code
}

// age makes a session one that was not used for long.
func age(t *testing.T, path, id string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Sessions []access.Session `json:"sessions"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	for i := range file.Sessions {
		if s := &file.Sessions[i]; s.ID == id {
			s.Seen = s.Seen.Add(-access.SessionFor - time.Hour)
		}
	}
	if b, err = json.Marshal(file); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRevokedSessionEndsStreams revokes the session of a page that has every kind of stream
// open: each says why it ends.
func TestRevokedSessionEndsStreams(t *testing.T) {
	h := openHost(t)
	rpc := execserver.New(execserver.Options{Backend: h, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	d := openDoor(t, h, func(o *httpapi.Options) {
		o.Limits.CheckEvery, o.RPC = time.Millisecond, rpc
		o.ACPWith, o.ACP = []string{"codex"}, func(ctx context.Context, s *httpapi.Socket, _ *access.Subject, _ spool.Backend, _ string) error {
			_, _, err := s.Read(ctx)
			return err
		}
	})
	if _, err := h.Start(t.Context(), spool.Spec{ID: "r", Argv: []string{"/bin/cat"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	page, info := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	header := func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: access.CookieName(r), Value: page.cookie})
		r.Header.Set(access.KeyHeader, page.key)
	}
	ends := make(map[string]func() string) // what each stream says last
	for _, path := range []string{"/v1/runs/r/events", "/v1/watch"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		header(r)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		if resp.StatusCode != http.StatusOK || !lines.Scan() {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		ends[path] = func() (last string) {
			for lines.Scan() {
				if lines.Text() != "" {
					last = lines.Text()
				}
			}
			reason, _, _ := strings.Cut(strings.TrimPrefix(last, `data: {"reason":"`), `"`)
			return reason
		}
	}
	for _, path := range []string{"/v1/rpc", "/v1/runs/r/attach", "/acp?agent=codex", "/v1/doctor/ws"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		header(r)
		ws, _, err := websocket.Dial(t.Context(), d.url+path, &websocket.DialOptions{HTTPClient: d.client, HTTPHeader: r.Header, Subprotocols: []string{access.KeyProtocol + page.key}})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		defer func() { _ = ws.CloseNow() }()
		ends[path] = func() string {
			for {
				if _, _, err := ws.Read(t.Context()); err != nil {
					var end websocket.CloseError
					if errors.As(err, &end) && end.Code == 4401 {
						return end.Reason
					}
					return err.Error()
				}
			}
		}
	}
	if err := access.RevokeSession(d.sessions(), info.ID); err != nil {
		t.Fatal(err)
	}
	for path, end := range ends {
		if got := end(); got != "revoked" {
			t.Errorf("%s ends with %q", path, got)
		}
	}
}

// TestRatesOfSubjects checks that a subject which is too fast is told to wait, and
// that an address which fails often is.
func TestRatesOfSubjects(t *testing.T) {
	d := openDoor(t, openHost(t), func(o *httpapi.Options) {
		o.Limits.StartRate, o.Limits.InputRate, o.Limits.RequestRate, o.Limits.Failures, o.Limits.FailuresTotal = 1, 1, 1, 2, 3
	})
	_, alice, err := access.CreateToken(d.tokens(), access.Token{Name: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path, body string
		most               int
	}{
		{"POST", "/v1/runs", `{"argv":["/bin/true"]}`, 5},
		{"POST", "/v1/runs/none/asks/1", `{}`, 1},
		{"GET", "/v1/runs", "", 1},
	} {
		for range 100 {
			resp := d.do(t, tt.method, tt.path, tt.body, credentials{bearer: alice})
			var p httpapi.Problem
			if resp.StatusCode != 429 {
				continue // time passes
			}
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != "rate" || p.RetryAfterMs <= 0 || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s %s: %+v, %v", tt.method, tt.path, p, err)
			}
			tt.most = 0
			break
		}
		if tt.most > 0 {
			t.Errorf("%s %s is never too fast", tt.method, tt.path)
		}
	}
	for i, want := range []string{"unauthenticated", "unauthenticated", "too_many_failures"} {
		resp := d.do(t, "GET", "/v1/runs", "", credentials{bearer: "x"})
		var p httpapi.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != want || (resp.Header.Get("Retry-After") != "") != (want == "too_many_failures") {
			t.Errorf("failure %d: %+v, %v", i, p, err)
		}
	}
	if status, code := d.ask(t, "POST", "/v1/session", `{"code":"x"}`, credentials{}, nil); status != 429 || code != "too_many_failures" {
		t.Errorf("a wrong code after that: %d %s", status, code)
	}
	if status, _ := d.ask(t, "GET", "/v1/session", "", credentials{bearer: ownersToken}, nil); status != 200 {
		t.Errorf("the owner after that: %d", status)
	}
}

// TestPage checks the page that signs in: who may link to it, and what it may do.
func TestPage(t *testing.T) {
	d := openDoor(t, openHost(t))
	link := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	frame := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
	image := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
	form := map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Origin": "http://evil.test"}
	for _, tt := range []struct {
		name, method, path, host string
		header                   map[string]string
		status                   int
	}{
		{"typed", "GET", "/", "", nil, 200},
		{"link", "GET", "/", "", link, 200},
		{"link to a run", "GET", "/runs/x", "", link, 200},
		{"rebound name", "GET", "/", "evil.test", link, 403},
		{"link to the API", "GET", "/v1/runs", "", link, 403},
		{"frame", "GET", "/", "", frame, 403},
		{"image", "GET", "/assets/app.js", "", image, 403},
		{"form", "POST", "/", "", form, 403},
		{"post", "POST", "/", "", nil, 405},
		{"script", "GET", "/assets/app.js", "", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"style", "GET", "/assets/style.css", "", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"inbox", "GET", "/inbox", "", link, 200},
		{"link to a file", "GET", "/assets/app.js", "", link, 403},
		{"no file", "GET", "/assets/../page.go", "", nil, 404},
		{"no page", "GET", "/runs", "", nil, 404},
		{"deeper", "GET", "/runs/x/y", "", nil, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, d.url+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		for k, v := range tt.header {
			r.Header.Set(k, v)
		}
		resp, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %s, %v", tt.name, resp.Status, err)
		}
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			continue
		}
		policy := resp.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", tt.name, policy, part)
			}
		}
		for _, bad := range []string{"unsafe-eval", "script-src 'self' '", "style-src 'unsafe", "<style", "onclick", "javascript:"} {
			if strings.Contains(policy+string(b), bad) {
				t.Errorf("%s: the page has %s", tt.name, bad)
			}
		}
		if resp.Header.Get("X-Frame-Options") != "DENY" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", tt.name, resp.Header)
		}
	}
}
