package httpapi_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/audit"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestAuditRoute reads who did what, from a cursor, and only with the scope admin.
func TestAuditRoute(t *testing.T) {
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
		access.AuditEngine:  func(string) (engine.Engine, error) { return audit.Engine{}, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	log, err := access.OpenAudit(t.Context(), h, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	d := openDoor(t, h, func(o *httpapi.Options) { o.Audit = log })
	owner := credentials{bearer: ownersToken}
	d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	if status, code := d.ask(t, "POST", "/v1/tokens", `{"name":"reader","scopes":["runs:read"]}`, owner, nil); status != 201 {
		t.Fatalf("create: %d %s", status, code)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+"/v1/audit?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+ownersToken)
	resp, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var acts []string
	var last httpapi.AuditLine
	for lines := bufio.NewScanner(resp.Body); !slices.Contains(acts, access.ActToken) && lines.Scan(); {
		last = httpapi.AuditLine{}
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil || last.Seq == 0 {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		acts = append(acts, last.Act)
	}
	if !slices.Contains(acts, access.ActLogin) || !slices.Contains(acts, access.ActToken) || last.Subject != "owner" {
		t.Errorf("the audit log has %v", acts)
	}
	if status, code := d.ask(t, "GET", "/v1/audit?after=x", "", owner, nil); status != 400 || code != "bad_cursor" {
		t.Errorf("a bad cursor: %d %s", status, code)
	}
	answer := d.do(t, "GET", "/v1/audit", "", owner)
	if b, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(b), `"act":"login"`) {
		t.Errorf("without following: %s, %v", b, err)
	}
}

// TestMetrics reads the numbers for Prometheus, and an audit log that there is not.
func TestMetrics(t *testing.T) {
	d := openDoor(t, openHost(t))
	owner := credentials{bearer: ownersToken}
	if status, code := d.ask(t, "GET", "/v1/audit", "", owner, nil); status != 422 || code != "unsupported" {
		t.Errorf("no audit log: %d %s", status, code)
	}
	b, err := io.ReadAll(d.do(t, "GET", "/metrics", "", owner).Body)
	for _, line := range []string{"spool_runs_live 0\n", "spool_streams_open 0\n", `spool_requests_total{operation="getAudit"} 1` + "\n", `spool_problems_total{code="unsupported"} 1` + "\n"} {
		if err != nil || !strings.Contains(string(b), line) {
			t.Errorf("the numbers lack %q: %s, %v", line, b, err)
		}
	}
	if status, _ := d.ask(t, "GET", "/metrics", "", credentials{}, nil); status != 401 {
		t.Errorf("without a token: %d", status)
	}
}

// TestProbes checks what doctors ask for.
func TestProbes(t *testing.T) {
	d := openDoor(t, openHost(t), func(o *httpapi.Options) {
		o.Proxies, o.Gate = access.Proxies{netip.MustParsePrefix("127.0.0.0/8")}, &access.Gate{Hosts: []string{"spool.example.com"}}
	})
	owner := credentials{bearer: ownersToken}
	b, err := io.ReadAll(d.do(t, "GET", "/v1/doctor/stream?frames=3&every_ms=1", "", owner).Body)
	if err != nil || strings.Count(string(b), "data: {") != 3 {
		t.Errorf("a stream of frames: %s, %v", b, err)
	}
	if status, code := d.ask(t, "GET", "/v1/doctor/stream?frames=101", "", owner, nil); status != 400 || code != "invalid" {
		t.Errorf("too many frames: %d %s", status, code)
	}
	if status, _ := d.ask(t, "GET", "/v1/doctor/stream", "", credentials{}, nil); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	large, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/doctor/echo", strings.NewReader(strings.Repeat("x", 33<<20)))
	if err != nil {
		t.Fatal(err)
	}
	large.Header.Set("Authorization", "Bearer "+ownersToken)
	large.Header.Set("Expect", "100-continue") // the body is not sent
	patient := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer patient.CloseIdleConnections()
	refused, err := patient.RoundTrip(large)
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %s", refused.Status)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/v1/doctor/echo?wait_ms=1", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + ownersToken, "X-Forwarded-For": "192.0.2.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "spool.example.com",
	} {
		r.Header.Set(name, value)
	}
	resp, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var echo httpapi.ProbeEcho
	if err := json.NewDecoder(resp.Body).Decode(&echo); err != nil || echo.Bytes != 5 || echo.From != "192.0.2.9" || !echo.Secure || echo.Host != "spool.example.com" || len(echo.Via) != 3 {
		t.Errorf("behind a proxy: %+v, %v", echo, err)
	}
}
