package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// startRuns starts finished runs of the owner, and waits for them.
func startRuns(t *testing.T, b spool.Backend, ids ...spool.RunID) {
	t.Helper()
	for _, id := range ids {
		run, err := spool.Start(t.Context(), b, spool.Spec{ID: id, Argv: []string{"/bin/echo", "output of " + string(id)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// share makes a share, and returns its secret.
func (d *door) share(t *testing.T, run, body string, by credentials) (secret string, info httpapi.ShareInfo) {
	t.Helper()
	if status, code := d.ask(t, "POST", "/v1/runs/"+run+"/shares", body, by, &info); status != 201 {
		t.Fatalf("share: %d %s", status, code)
	}
	base, secret, ok := strings.Cut(info.URL, "#s=")
	if !ok || base != d.url+"/runs/"+run {
		t.Errorf("the address of a share is %s", info.URL)
	}
	return secret, info
}

// readRound reads an answer, of a watch that does not end its first round.
func readRound(resp *http.Response) ([]byte, error) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return io.ReadAll(resp.Body)
	}
	defer resp.Body.Close()
	var b []byte
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && lines.Text() != "event: sync" {
		b = append(append(b, lines.Bytes()...), '\n')
	}
	return b, lines.Err()
}

// TestShareSeesOneRun has the holder of a share try every operation on the run that is
// shared, on another one, and on one that there is not: the last two are alike.
func TestShareSeesOneRun(t *testing.T) {
	h := openHost(t)
	startRuns(t, h, "mine", "other")
	d := openDoor(t, h)
	secret, info := d.share(t, "mine", `{"scopes":["runs:input","runs:control","asks:answer"]}`, credentials{bearer: ownersToken})
	if len(info.Scopes) != 4 || time.Until(info.Expires) > access.ShareFor {
		t.Errorf("the share %+v", info)
	}
	page, session := d.signIn(t, `{"token":"`+secret+`"}`)
	if len(session.Runs) != 1 || session.Runs[0] != "mine" || session.Expires.After(info.Expires) {
		t.Errorf("signed in as %+v", session)
	}
	replacer := func(run string) *strings.Replacer {
		return strings.NewReplacer("{run}", run, "{seq}", "1", "{type}", "text", "{subtype}", "plain", "{digest}", "sha256:"+strings.Repeat("0", 64),
			"{name}", run, "{code}", "invalid", "{id}", info.ID)
	}
	for name, with := range map[string]credentials{"token": {bearer: secret}, "page": page} {
		tried := 0
		for _, op := range httpapi.Operations() {
			if op.Open || op.Name == "revokeShare" || op.Name == "signOut" {
				continue
			}
			tried++
			ask := func(run string) string {
				body := ""
				if op.Body {
					body = "{}"
				}
				resp := d.do(t, op.Method, replacer(run).Replace(op.Pattern), body, with)
				b, err := readRound(resp)
				if err != nil {
					t.Fatal(err)
				}
				var p httpapi.Problem
				_ = json.Unmarshal(b, &p) // not every answer is a problem
				if strings.Contains(string(b), "output of other") || strings.Contains(string(b), `"id":"other"`) {
					t.Errorf("%s: %s %s of %s answers %s", name, op.Method, op.Pattern, run, b)
				}
				return fmt.Sprintf("%d %s %s", resp.StatusCode, p.Code, strings.ReplaceAll(p.Detail, run, "RUN"))
			}
			other, none := ask("other"), ask("none")
			if other != none {
				t.Errorf("%s: %s %s answers %q for a run that is not shared, and %q for none", name, op.Method, op.Pattern, other, none)
			}
			if strings.Contains(op.Pattern, "{run}") && strings.HasPrefix(other, "2") {
				t.Errorf("%s: %s %s answers %q for a run that is not shared", name, op.Method, op.Pattern, other)
			}
		}
		if tried < 30 {
			t.Errorf("only %d operations", tried)
		}
		for _, row := range []struct {
			method, path, body string
			status             int
			code, has          string
		}{
			{"GET", "/v1/runs/mine/output", "", 200, "", "output of mine"},
			{"GET", "/v1/runs", "", 200, "", `"id":"mine"`},
			{"GET", "/v1/runs?oldest=1&limit=5", "", 200, "", `"id":"mine"`},
			{"GET", "/v1/runs?prefix=oth", "", 200, "", `{"runs":[]}`},
			{"GET", "/v1/runs?engine=kernel", "", 200, "", `{"runs":[]}`},
			{"GET", "/v1/search?q=output", "", 200, "", "output of mine"},
			{"POST", "/v1/runs/mine/control", `{"op":"kill"}`, 202, "", ""},
			{"POST", "/v1/runs", `{"argv":["/bin/true"]}`, 403, "forbidden", ""},
			{"DELETE", "/v1/runs/mine", "", 403, "forbidden", ""},
			{"POST", "/v1/runs/mine/shares", `{}`, 403, "forbidden", ""},
			{"GET", "/v1/tokens", "", 403, "forbidden", ""},
			{"GET", "/v1/shares", "", 200, "", `{"shares":[]}`},
			{"DELETE", "/v1/shares/" + info.ID, "", 404, "not_found", ""},
		} {
			resp := d.do(t, row.method, row.path, row.body, with)
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != row.status || !strings.Contains(string(b), row.has) || !strings.Contains(string(b), row.code) {
				t.Errorf("%s: %s %s: %s %s, %v", name, row.method, row.path, resp.Status, b, err)
			}
		}
	}
}

// TestShareLife checks who may share what, and how a share ends.
func TestShareLife(t *testing.T) {
	h := openHost(t)
	startRuns(t, h, "mine")
	d := openDoor(t, h)
	token := func(name string, scopes ...access.Scope) credentials {
		_, secret, err := access.CreateToken(d.tokens(), access.Token{Name: name, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return credentials{bearer: secret}
	}
	alice, bob, owner := token("alice", access.Read, access.Start), token("bob", access.Read), credentials{bearer: ownersToken}
	if status, code := d.ask(t, "POST", "/v1/runs?wait_ms=50000", `{"id":"hers","argv":["/bin/true"]}`, alice, nil); status != 201 {
		t.Fatalf("start: %d %s", status, code)
	}
	past, future := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, tt := range []struct {
		name, run, body string
		by              credentials
		status          int
		code            string
	}{
		{"own run", "hers", `{}`, alice, 201, ""},
		{"until then", "hers", `{"expires":"` + future + `"}`, alice, 201, ""},
		{"a scope that she lacks", "hers", `{"scopes":["runs:control"]}`, alice, 403, "forbidden"},
		{"a scope that shares lack", "mine", `{"scopes":["runs:delete"]}`, owner, 400, "invalid"},
		{"everything", "mine", `{"scopes":["admin"]}`, owner, 400, "invalid"},
		{"in the past", "mine", `{"expires":"` + past + `"}`, owner, 400, "invalid"},
		{"the run of another", "hers", `{}`, bob, 404, "not_found"},
		{"no run", "none", `{}`, bob, 404, "not_found"},
	} {
		if status, code := d.ask(t, "POST", "/v1/runs/"+tt.run+"/shares", tt.body, tt.by, nil); status != tt.status || code != tt.code {
			t.Errorf("%s: %d %s", tt.name, status, code)
		}
	}
	count := func(by credentials) int {
		var list httpapi.ShareList
		if status, code := d.ask(t, "GET", "/v1/shares", "", by, &list); status != 200 {
			t.Errorf("list: %d %s", status, code)
		}
		for _, s := range list.Shares {
			if s.URL != "" || s.By != "alice" {
				t.Errorf("a list has %+v", s)
			}
		}
		return len(list.Shares)
	}
	if a, b, o := count(alice), count(bob), count(owner); a != 2 || b != 0 || o != 2 {
		t.Errorf("alice has %d shares, bob %d, all have %d", a, b, o)
	}
	secret, info := d.share(t, "hers", `{}`, alice)
	with := credentials{bearer: secret}
	if status, _ := d.ask(t, "GET", "/v1/runs/hers", "", with, nil); status != 200 {
		t.Errorf("a share: %d", status)
	}
	var list httpapi.ShareList
	if d.ask(t, "GET", "/v1/shares?run=hers", "", alice, &list); len(list.Shares) != 3 || list.Shares[2].LastUsed.IsZero() {
		t.Errorf("a share was never used: %+v", list.Shares)
	}
	if status, _ := d.ask(t, "DELETE", "/v1/shares/"+info.ID, "", bob, nil); status != 404 {
		t.Errorf("bob revokes a share of alice: %d", status)
	}
	if status, _ := d.ask(t, "DELETE", "/v1/shares/"+info.ID, "", alice, nil); status != 204 {
		t.Errorf("alice revokes her share: %d", status)
	}
	if status, _ := d.ask(t, "GET", "/v1/runs/hers", "", with, nil); status != 401 {
		t.Errorf("a revoked share: %d", status)
	}
	secret, _ = d.share(t, "hers", `{}`, alice)
	with = credentials{bearer: secret}
	if _, err := access.RevokeToken(d.tokens(), "alice"); err != nil {
		t.Fatal(err)
	}
	if status, code := d.ask(t, "GET", "/v1/runs/hers", "", with, nil); status != 401 || code != "expired" {
		t.Errorf("the share of a revoked token: %d %s", status, code)
	}
	// Another run with the id of a shared one that was deleted is not shared.
	secret, _ = d.share(t, "mine", `{}`, owner)
	if status, code := d.ask(t, "DELETE", "/v1/runs/mine", "", owner, nil); status != 204 {
		t.Fatalf("delete: %d %s", status, code)
	}
	carol := token("carol")
	if status, code := d.ask(t, "POST", "/v1/runs?wait_ms=50000", `{"id":"mine","argv":["/bin/true"]}`, carol, nil); status != 201 {
		t.Fatalf("start: %d %s", status, code)
	}
	if status, _ := d.ask(t, "GET", "/v1/runs/mine", "", credentials{bearer: secret}, nil); status != 404 {
		t.Errorf("the run of carol with the id of a shared one: %d", status)
	}
}

// TestTokenRoutes makes, lists and revokes tokens, also narrow ones.
func TestTokenRoutes(t *testing.T) {
	h := openHost(t)
	d := openDoor(t, h)
	owner := credentials{bearer: ownersToken}
	var made httpapi.TokenInfo
	if status, code := d.ask(t, "POST", "/v1/tokens", `{"name":"ml","scopes":["runs:read","runs:start"],"labels":{"team":"ml"},"quotas":{"live":5}}`, owner, &made); status != 201 || made.Secret == "" {
		t.Fatalf("create: %d %s, %+v", status, code, made)
	}
	for _, tt := range []struct {
		body, code string
	}{
		{`{"name":""}`, "invalid"},
		{`{"name":"ml"}`, "invalid"},
		{`{"name":"x","scopes":["all"]}`, "invalid"},
		{`{"name":"x","scopes":["admin"],"labels":{"a":"b"}}`, "invalid"},
		{`{"name":"x","scopes":["runs:start"],"runs":["r"]}`, "invalid"},
		{`{"name":"x","labels":{"spool.access.subject":"y"}}`, "forbidden"},
		{`{"name":"x","scope":["runs:read"]}`, "unknown_member"},
	} {
		if _, code := d.ask(t, "POST", "/v1/tokens", tt.body, owner, nil); code != tt.code {
			t.Errorf("%s: %s, want %s", tt.body, code, tt.code)
		}
	}
	ml := credentials{bearer: made.Secret}
	var all httpapi.TokenInfo
	if status, code := d.ask(t, "POST", "/v1/tokens", `{"name":"ml2","subject":"ml"}`, owner, &all); status != 201 {
		t.Fatalf("create: %d %s", status, code)
	}
	for id, with := range map[string]credentials{"narrow": ml, "wide": {bearer: all.Secret}} {
		if status, code := d.ask(t, "POST", "/v1/runs?wait_ms=50000", `{"id":"`+id+`","argv":["/bin/true"]}`, with, nil); status != 201 {
			t.Fatalf("start: %d %s", status, code)
		}
	}
	var run spool.Info
	if d.ask(t, "GET", "/v1/runs/narrow", "", ml, &run); run.Labels["team"] != "ml" {
		t.Errorf("the run has the labels %v", run.Labels)
	}
	if status, code := d.ask(t, "GET", "/v1/runs/wide", "", ml, nil); status != 404 || code != "not_found" {
		t.Errorf("a run of the subject without the label: %d %s", status, code)
	}
	var runs httpapi.RunList
	if d.ask(t, "GET", "/v1/runs", "", ml, &runs); len(runs.Runs) != 1 || runs.Runs[0].ID != "narrow" {
		t.Errorf("the list has %+v", runs.Runs)
	}
	if d.ask(t, "GET", "/v1/runs?label=team:x", "", ml, &runs); len(runs.Runs) != 0 {
		t.Errorf("the list has %+v", runs.Runs)
	}
	resp := d.do(t, "GET", "/v1/tokens", "", owner)
	b, err := io.ReadAll(resp.Body)
	var list httpapi.TokenList
	if err != nil || json.Unmarshal(b, &list) != nil || len(list.Tokens) != 2 || list.Tokens[0].LastUsed.IsZero() || strings.Contains(string(b), "sha256") || strings.Contains(string(b), "secret") {
		t.Errorf("the list of tokens: %s, %v", b, err)
	}
	if status, _ := d.ask(t, "GET", "/v1/tokens", "", ml, nil); status != 403 {
		t.Errorf("a subject lists tokens: %d", status)
	}
	if status, _ := d.ask(t, "DELETE", "/v1/tokens/"+made.ID, "", owner, nil); status != 204 {
		t.Errorf("revoke: %d", status)
	}
	if status, _ := d.ask(t, "DELETE", "/v1/tokens/"+made.ID, "", owner, nil); status != 404 {
		t.Errorf("revoke again: %d", status)
	}
	if status, _ := d.ask(t, "GET", "/v1/runs", "", ml, nil); status != 401 {
		t.Errorf("a revoked token: %d", status)
	}
}

// TestTickets checks that a ticket is for one address and one session, and once.
func TestTickets(t *testing.T) {
	h := openHost(t)
	startRuns(t, h, "mine")
	d := openDoor(t, h)
	page, info := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	other, _ := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	cookie := credentials{cookie: page.cookie}
	ticketFor := func(body string) string {
		t.Helper()
		var ticket httpapi.TicketInfo
		if status, code := d.ask(t, "POST", "/v1/tickets", body, page, &ticket); status != 201 {
			t.Fatalf("ticket: %d %s", status, code)
		}
		return ticket.URL
	}
	for _, path := range []string{
		"/v1/runs", "/v1/runs/", "/v1/session", "/v1/runs/mine/control", "/v1/runs/../session", "http://evil.test/v1/runs/mine", "//evil.test/v1/runs/mine",
		"/v1/runs/mine/../../tokens", "/", "", "/t/x", "/v1/search", "/v1/runs/mine/nothing", "/v1/runs/mine/shares",
	} {
		if status, code := d.ask(t, "POST", "/v1/tickets", `{"path":"`+path+`"}`, page, nil); status != 400 || code != "invalid" {
			t.Errorf("a ticket for %q: %d %s", path, status, code)
		}
	}
	if status, code := d.ask(t, "POST", "/v1/tickets", `{"path":"/v1/runs/mine"}`, credentials{bearer: ownersToken}, nil); status != 422 || code != "unsupported" {
		t.Errorf("a ticket of a program: %d %s", status, code)
	}
	once := ticketFor(`{"path":"/v1/runs/mine/output?tail_bytes=6"}`)
	for _, tt := range []struct {
		name   string
		with   credentials
		method string
		status int
	}{
		{"without the cookie", credentials{}, "GET", 401},
		{"with the key alone", credentials{key: page.key}, "GET", 401},
		{"with the cookie of another page", credentials{cookie: other.cookie}, "GET", 401},
		{"with a token", credentials{bearer: ownersToken}, "GET", 401},
		{"with another method", cookie, "POST", 405},
		{"with its cookie", cookie, "GET", 200},
		{"twice", cookie, "GET", 401},
	} {
		resp := d.do(t, tt.method, once, "", tt.with)
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != tt.status || tt.status == 200 && string(b) != " mine\n" {
			t.Errorf("%s: %s %q, %v", tt.name, resp.Status, b, err)
		}
		if !strings.Contains(resp.Header.Get("Content-Security-Policy"), "sandbox") || resp.Header.Get("X-Frame-Options") != "SAMEORIGIN" {
			t.Errorf("%s: headers %v", tt.name, resp.Header)
		}
	}
	often := ticketFor(`{"path":"/v1/runs/mine/events","stream":true}`)
	for range 3 {
		if status, code := d.ask(t, "GET", often, "", cookie, nil); status != 200 {
			t.Errorf("a ticket for a stream: %d %s", status, code)
		}
	}
	if err := access.RevokeSession(d.sessions(), info.ID); err != nil {
		t.Fatal(err)
	}
	if status, _ := d.ask(t, "GET", often, "", cookie, nil); status != http.StatusUnauthorized {
		t.Errorf("a ticket of a revoked session: %d", status)
	}
	if status, _ := d.ask(t, "GET", "/t/x", "", other, nil); status != http.StatusUnauthorized {
		t.Errorf("no ticket: %d", status)
	}
}
