package doctor

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// before serves a proxy before a server. It changes what the server answers.
func before(t *testing.T, server string, change func(*http.Response) error) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		ModifyResponse: change,
		FlushInterval:  -1,
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// holdBack reads the whole answer before it passes it on, as a proxy that buffers.
func holdBack(resp *http.Response) error {
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	resp.Header.Set("Server", "nginx/1.26.0")
	return nil
}

// TestURLChecks checks a server without a proxy, and behind proxies with each fault.
func TestURLChecks(t *testing.T) {
	owner := authenticator{}
	api := httpapi.New(httpapi.Options{Auth: owner, Gate: &access.Gate{Hosts: []string{"127.0.0.1"}}, Proxies: access.Proxies{netip.MustParsePrefix("127.0.0.0/8")}})
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		s.Close()
	})
	forgetHost := func(server string) string {
		to, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = "evil.test" }})
		t.Cleanup(proxy.Close)
		return proxy.URL
	}
	small := httptest.NewServer(http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.Header().Set("Server", "nginx")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}), 1<<20))
	t.Cleanup(small.Close)
	deaf := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, _ := url.Parse(s.URL)
		r.Header.Del("Upgrade")
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Server", "nginx")
			return nil
		}}).ServeHTTP(w, r)
	}))
	t.Cleanup(deaf.Close)
	for _, tt := range []struct {
		name, url, token, check string
		verdict                 Verdict
		has                     string
	}{
		{"direct", s.URL, "good", "name", OK, "127.0.0.1"},
		{"direct", s.URL, "good", "tls", OK, "stays on this machine"},
		{"direct", s.URL, "good", "host", OK, "HTTP/1.1"},
		{"direct", s.URL, "good", "token", OK, "owner"},
		{"direct", s.URL, "bad", "token", Problem, "does not know who asks"},
		{"direct", s.URL, "good", "websocket", OK, "1 MiB passes"},
		{"direct", s.URL, "bad", "websocket", Warning, "refuses"},
		{"through a proxy", before(t, s.URL, nil), "good", "websocket", OK, "1 MiB passes"},
		{"no WebSockets", deaf.URL, "good", "websocket", Warning, "through nginx: the answer has the status 426"},
		{"direct", s.URL, "good", "body", OK, "20 MiB"},
		{"direct", s.URL, "good", "clock", OK, "agree"},
		{"direct", s.URL, "good", "wait", OK, "may wait"},
		{"unknown host", forgetHost(s.URL), "good", "host", Problem, "does not know itself"},
		{"held back", before(t, s.URL, holdBack), "good", "stream", Problem, "held back, through nginx"},
		{"compressed", before(t, s.URL, func(r *http.Response) error { r.Header.Set("Content-Encoding", "br"); return nil }), "good", "stream", Warning, "compresses"},
		{"small bodies", small.URL, "good", "body", Warning, "does not arrive"},
		{"nothing there", "http://127.0.0.1:1", "", "host", Problem, "no server answers"},
		{"nothing there", "http://127.0.0.1:1", "", "websocket", Warning, "no WebSocket opens"},
	} {
		checks, err := URLChecks(URLOptions{URL: tt.url, Token: tt.token, Silence: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if checks, err = Select(checks, []string{tt.check}); err != nil {
			t.Fatal(err)
		}
		for f := range Run(t.Context(), checks, nil) {
			if f.Verdict != tt.verdict || !strings.Contains(f.Text, tt.has) || (f.Next == "") != (f.Verdict == OK) {
				t.Errorf("%s: %s: %+v", tt.name, tt.check, f)
			}
		}
	}
	for _, bad := range []string{"", "spool.example.com", "ws://localhost", "http://"} {
		if _, err := URLChecks(URLOptions{URL: bad}); err == nil {
			t.Errorf("%q is a server", bad)
		}
	}
	deep, err := URLChecks(URLOptions{URL: s.URL, Deep: true})
	if err != nil || len(deep) < 12 {
		t.Errorf("%d deep checks, %v", len(deep), err)
	}
}

// authenticator admits one token.
type authenticator struct{}

func (authenticator) Authenticate(r *http.Request) (*access.Subject, error) {
	if r.Header.Get("Authorization") != "Bearer good" {
		return nil, &access.Refusal{Status: http.StatusUnauthorized, Text: "no"}
	}
	return access.Owner(), nil
}

func (authenticator) Valid(*access.Subject) error { return nil }
