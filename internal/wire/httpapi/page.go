package httpapi

import (
	"bytes"
	"embed"
	"net/http"
	"path"
	"strings"
	"time"
)

// The page that signs in. It is static: what it shows comes from the API.
//
//go:embed page
var pageFiles embed.FS

// page is a static file.
type page struct {
	name, contentType string
}

// pagePolicy lets the page load its own files and talk to its own server, and nothing
// else. Texts never become markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageAt returns the page at a path, or nil.
func pageAt(at string) *page {
	switch {
	case at == "/" || path.Dir(at) == "/runs" && path.Base(at) != "runs":
		return &page{"index.html", "text/html; charset=utf-8"}
	case at == "/page.js":
		return &page{"page.js", "text/javascript; charset=utf-8"}
	case at == "/page.css":
		return &page{"page.css", "text/css; charset=utf-8"}
	}
	return nil
}

func (p *page) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page takes GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	b, err := pageFiles.ReadFile("page/" + p.name)
	if err != nil { // it is in the binary
		http.Error(w, "the page is missing", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", p.contentType)
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	if strings.HasPrefix(p.contentType, "text/html") {
		h.Set("Content-Security-Policy", pagePolicy)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}
