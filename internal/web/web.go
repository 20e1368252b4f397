// Package web holds the web console, as esbuild has made it from the sources in src:
// "node build.mjs" writes dist, and a test compares both.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed dist/*.gz
var dist embed.FS

// File is a file of the console.
type File struct {
	Type string // the content type
	Gzip []byte // the content, compressed
	ETag string
	// Version is in the address with which other files name it; empty if they
	// use that of all.
	Version string
}

// Content returns the content as it is.
func (f *File) Content() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(f.Gzip))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// contents are the files of the console, by their names.
type contents struct {
	files   map[string]*File
	index   string // the page
	version string // changes with every file
}

var load = sync.OnceValues(func() (*contents, error) {
	c := &contents{files: make(map[string]*File)}
	all := sha256.New()
	names, err := fs.Glob(dist, "dist/*.gz")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := dist.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		all.Write(sum[:])
		f := &File{Gzip: b, ETag: `W/"` + hex.EncodeToString(sum[:8]) + `"`}
		short := strings.TrimSuffix(path.Base(name), ".gz")
		f.Type = types[path.Ext(short)]
		if short == "shared.js" { // other files name it with its version
			content, err := f.Content()
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(content)
			f.Version = hex.EncodeToString(sum[:8])
		}
		if short != "index.html" {
			c.files[short] = f
			continue
		}
		page, err := f.Content()
		if err != nil {
			return nil, err
		}
		c.index = string(page)
	}
	c.version = hex.EncodeToString(all.Sum(nil)[:8])
	c.index = strings.ReplaceAll(c.index, "VERSION", c.version)
	return c, nil
})

// types are the content types of the files.
var types = map[string]string{
	".js":          "text/javascript; charset=utf-8",
	".css":         "text/css; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".svg":         "image/svg+xml",
	".txt":         "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json",
}

// Asset returns the file with a name, or nil.
func Asset(name string) *File {
	c, err := load()
	if err != nil { // the files are in the binary, and a test reads them all
		return nil
	}
	return c.files[name]
}

// Version changes with every file: an address with it may be kept for ever.
func Version() string {
	c, err := load()
	if err != nil {
		return ""
	}
	return c.version
}

// Page returns the page that loads the console. Styles that its scripts make need the
// nonce.
func Page(nonce string) string {
	c, err := load()
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(c.index, "NONCE", nonce)
}
