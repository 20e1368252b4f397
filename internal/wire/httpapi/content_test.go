package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// TestContentOfRuns checks the headers of what runs display: no type is guessed, none
// is executed, none reaches our origin.
func TestContentOfRuns(t *testing.T) {
	const framed = "sandbox; default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; font-src data:; frame-ancestors 'self'"
	const still = "default-src 'none'; sandbox"
	for name, want := range map[string]struct {
		contentType, policy string
		attachment          bool
	}{
		"image/png":                      {"image/png", still, false},
		"image/jpeg":                     {"image/jpeg", still, false},
		"image/gif":                      {"image/gif", still, false},
		"image/webp":                     {"image/webp", still, false},
		"image/svg+xml":                  {"image/svg+xml", framed, false},
		"text/html":                      {"text/html; charset=utf-8", framed, false},
		"application/pdf":                {"application/pdf", framed, false},
		"application/json":               {"application/json", still, false},
		"application/vnd.plotly.v1+json": {"application/json", still, false},
		"text/plain":                     {"text/plain; charset=utf-8", still, false},
		"text/markdown":                  {"text/plain; charset=utf-8", still, false},
		"text/javascript":                {"text/plain; charset=utf-8", still, false},
		"text/css":                       {"text/plain; charset=utf-8", still, false},
		"text/xml":                       {"text/plain; charset=utf-8", still, false},
		"application/javascript":         {"application/octet-stream", still, true},
		"application/xhtml+xml":          {"application/octet-stream", still, true},
		"application/xml":                {"application/octet-stream", still, true},
		"image/x-icon":                   {"application/octet-stream", still, true},
		"multipart/x-mixed-replace":      {"application/octet-stream", still, true},
		"text/html\r\nSet-Cookie: x":     {"text/plain; charset=utf-8", still, false},
		"TEXT/HTML":                      {"application/octet-stream", still, true},
		"application/x-shockwave-flash":  {"application/octet-stream", still, true},
		"image/svg+xml; charset=x":       {"application/octet-stream", still, true},
		"application/json, text/html":    {"application/octet-stream", still, true},
		"application/manifest+json\x00":  {"application/octet-stream", still, true},
		"application/vnd.dart":           {"application/octet-stream", still, true},
		"message/rfc822":                 {"application/octet-stream", still, true},
		"font/woff2":                     {"application/octet-stream", still, true},
		"video/mp4":                      {"application/octet-stream", still, true},
		"":                               {"application/octet-stream", still, true},
	} {
		h := http.Header{}
		safeContent(h, name)
		if got := h.Get("Content-Type"); got != want.contentType {
			t.Errorf("%q has the type %q, want %q", name, got, want.contentType)
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, want.policy) || strings.Contains(policy, "allow-same-origin") || strings.Contains(policy, "script") {
			t.Errorf("%q has the policy %q", name, policy)
		}
		if (h.Get("Content-Disposition") == "attachment") != want.attachment || h.Get("X-Frame-Options") != "SAMEORIGIN" {
			t.Errorf("%q has the headers %v", name, h)
		}
	}
	if strings.Contains(scriptsPolicy, "allow-same-origin") || !strings.HasPrefix(scriptsPolicy, "sandbox allow-scripts; default-src 'none'") || strings.Contains(scriptsPolicy, "connect-src") {
		t.Errorf("with scripts the policy is %q", scriptsPolicy)
	}
}
