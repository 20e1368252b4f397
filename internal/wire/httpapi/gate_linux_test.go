package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestPagesOfOthers has a page of another site, and one of an origin that is
// allowed, send requests.
func TestPagesOfOthers(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Gate: &access.Gate{Origins: []string{"https://app.example.com"}}})
	for _, tt := range []struct {
		name, method, path string
		host               string
		header             map[string]string
		status             int
		code               string
	}{
		{"no page", "GET", "/v1/runs", "", nil, 200, ""},
		{"own page", "GET", "/v1/runs", "", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200, ""},
		{"rebound name", "GET", "/v1/runs", "evil.test", nil, 403, "bad_host"},
		{"health of a rebound name", "GET", "/healthz", "evil.test", nil, 403, "bad_host"},
		{"image", "GET", "/v1/runs", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "cross_site"},
		{"form", "POST", "/v1/runs", "", map[string]string{"Origin": "http://evil.test"}, 403, "bad_origin"},
		{"sandboxed frame", "POST", "/v1/runs", "", map[string]string{"Origin": "null"}, 403, "bad_origin"},
		{"preflight", "OPTIONS", "/v1/runs", "", map[string]string{"Origin": "http://evil.test"}, 403, "bad_origin"},
		{"allowed page", "GET", "/v1/runs", "", map[string]string{"Origin": "https://app.example.com", "Sec-Fetch-Site": "cross-site"}, 200, ""},
		{"allowed preflight", "OPTIONS", "/v1/runs", "", map[string]string{"Origin": "https://app.example.com", "Sec-Fetch-Site": "cross-site"}, 204, ""},
		{"preflight of nobody", "OPTIONS", "/v1/runs", "", nil, 405, "method"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, b.url+tt.path, strings.NewReader(`{"argv":["/bin/true"]}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			r.Header.Set("Content-Type", "application/json")
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			resp, err := b.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var p httpapi.Problem
			if tt.code != "" {
				if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
					t.Error(err)
				}
			}
			if resp.StatusCode != tt.status || p.Code != tt.code {
				t.Errorf("status %d with %q, want %d with %q", resp.StatusCode, p.Code, tt.status, tt.code)
			}
			want := ""
			if tt.header["Origin"] == "https://app.example.com" {
				want = "https://app.example.com"
			}
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("allowed to the origin %q, want %q", got, want)
			}
			for _, name := range []string{"X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy", "X-Frame-Options", "Cache-Control", "Spool-Request"} {
				if resp.Header.Get(name) == "" {
					t.Errorf("the answer has no header %s", name)
				}
			}
		})
	}
	for info, err := range h.List(t.Context(), spool.Filter{}) {
		t.Errorf("a page started %+v, %v", info, err)
	}
}
