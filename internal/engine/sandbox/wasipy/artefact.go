package wasipy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// Version is that of the interpreter.
const Version = "3.13.5"

// What build/build.sh made. Notices are in artefact/NOTICE.
//
//go:embed artefact
var artefacts embed.FS

// The artefacts: code without data, data laid out as the first memory, and the
// library as an archive that is not compressed within.
const (
	codeArtefact    = "artefact/python.wasm.gz"
	dataArtefact    = "artefact/python.data.gz"
	libraryArtefact = "artefact/library.zip.gz"
)

// format is part of the fingerprint: it changes with what the cache holds.
const format = "2"

// fingerprint names what the embedded interpreter is made of, so that a cache
// made of something else is never used.
var fingerprint = sync.OnceValues(func() (string, error) {
	h := sha256.New()
	_, _ = io.WriteString(h, format) // a hash takes everything
	for _, name := range []string{codeArtefact, dataArtefact, libraryArtefact} {
		b, err := artefacts.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read embedded file: %w", err)
		}
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	for _, s := range []string{guest.Boot, guest.Module, preload} {
		fmt.Fprintf(h, "%d %s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
})

// unpack returns an artefact as it was before it was compressed.
func unpack(name string) ([]byte, error) {
	b, err := artefacts.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read embedded file: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return out, nil
}
