package httpapi

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/web"
)

// page is a static file: the page of the console, or what that loads. What they show
// comes from the API.
type page struct {
	file *web.File // nil for the page itself
}

// pagePaths are where the page of the console is, besides /runs/RUN.
var pagePaths = []string{"/", "/inbox", "/new", "/doctor", "/settings", "/login"}

// assetPrefix is where the files of the console are.
const assetPrefix = "/assets/"

// pageAt returns the page at a path, or nil.
func pageAt(at string) *page {
	switch name, asset := strings.CutPrefix(at, assetPrefix); {
	case slices.Contains(pagePaths, at), path.Dir(at) == "/runs" && path.Base(at) != "runs":
		return &page{}
	case asset:
		if file := web.Asset(name); file != nil {
			return &page{file}
		}
	}
	return nil
}

// links reports whether other sites may link to it.
func (p *page) links() bool { return p.file == nil }

// pagePolicy lets the page load its own files and talk to its own server, and nothing
// else. Texts never become markup. A terminal makes style elements, which need the
// nonce, and style attributes for colours.
func pagePolicy(host, nonce string) string {
	connect := "'self'"
	if len(host) <= 255 && plainHost().MatchString(host) { // some browsers do not take 'self' for WebSockets
		connect += " ws://" + host + " wss://" + host
	}
	return "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-" + nonce + "'; style-src-attr 'unsafe-inline'; " +
		"img-src 'self' blob: data:; font-src 'self'; connect-src " + connect + "; frame-src 'self'; manifest-src 'self'; worker-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// plainHost matches what may be in a policy.
var plainHost = lazyregexp.New(`^[A-Za-z0-9.:\[\]-]+$`)

func (p *page) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page takes GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if p.file != nil {
		p.serveFile(w, r)
		return
	}
	nonce := rand.Text()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy(r.Host, nonce))
	h.Set("Permissions-Policy", "clipboard-read=(self), clipboard-write=(self), camera=(), microphone=(), geolocation=()")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(web.Page(nonce)))
}

// serveFile sends a file of the console. One that was asked for with the version in
// its address never changes.
func (p *page) serveFile(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", p.file.Type)
	h.Set("ETag", p.file.ETag)
	h.Set("Cache-Control", "no-cache")
	if v := r.URL.Query().Get("v"); v != "" && (v == web.Version() || v == p.file.Version) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.Header.Get("Range") == "" {
		h.Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.file.Gzip))
		return
	}
	b, err := p.file.Content()
	if err != nil { // it is in the binary
		http.Error(w, "the file is damaged", http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}
