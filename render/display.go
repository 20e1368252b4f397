package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// The MIME types that the renderer knows.
const (
	mimeMarkdown = "text/markdown"
	mimePlain    = "text/plain"
	mimeHTML     = "text/html"
	mimeLatex    = "text/latex"
	mimePNG      = "image/png"
	mimeJPEG     = "image/jpeg"
	mimeJSON     = "application/json"
)

// Display renders a display. An error means that a blob could not be read; the
// output then contains a placeholder.
func (r Renderer) Display(ctx context.Context, d *python.Display) (Output, error) {
	var out Output
	if _, ok := d.Bundle[python.MIMEStatus]; ok {
		return out, nil
	}
	for _, mime := range []string{mimePNG, mimeJPEG} {
		if raw, ok := d.Bundle[mime]; ok {
			if v, ok := binary(mime, raw); ok {
				out.Images = append(out.Images, v)
			}
		}
	}
	if raw, ok := d.Bundle[mimeJSON]; ok {
		v := Value{MIME: mimeJSON, Bytes: raw}
		if blob, ok := blobOf(mimeJSON, raw); ok {
			v = Value{MIME: mimeJSON, Blob: blob}
		}
		out.Data = append(out.Data, v)
	}
	// LaTeX is the last choice.
	for _, mime := range []string{mimeMarkdown, mimePlain, mimeHTML, mimeLatex} {
		raw, ok := d.Bundle[mime]
		if !ok {
			continue
		}
		text, whole, err := r.text(ctx, mime, raw)
		switch mime {
		case mimeMarkdown:
			out.Markdown = true
		case mimeHTML:
			if whole {
				text, out.Markdown = fromHTML(text)
			}
		}
		out.Text = trimLineEnd(text)
		return out, err
	}
	return out, nil
}

// text returns one MIME type of a value as text, and whether the text is
// complete.
func (r Renderer) text(ctx context.Context, mime string, raw json.RawMessage) (text string, whole bool, err error) {
	limit := r.MaxText
	if limit <= 0 {
		limit = DefaultMaxText
	}
	blob, ok := blobOf(mime, raw)
	if !ok {
		text, ok := stringOf(raw)
		if !ok {
			return fmt.Sprintf("[%s that could not be decoded]", mime), false, nil
		}
		text, whole = head(text, limit, int64(len(text)))
		return text, whole, nil
	}
	named := fmt.Sprintf("[%s of %d bytes: %s]", mime, blob.Size, blob.Digest)
	if r.Blobs == nil {
		return named, false, nil
	}
	f, err := r.Blobs.Blob(ctx, blob.Digest)
	if err != nil {
		return named, false, fmt.Errorf("render %s: %w", mime, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+utf8.UTFMax))
	if err := errors.Join(err, f.Close()); err != nil {
		return named, false, fmt.Errorf("render %s: %w", mime, err)
	}
	text, whole = head(string(b), limit, max(blob.Size, int64(len(b))))
	return text, whole, nil
}

// head cuts text that is too long at the end of a character and appends the
// size of the rest.
func head(text string, limit int, size int64) (string, bool) {
	if len(text) <= limit {
		return text, true
	}
	n := limit
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s\n[%d more bytes]", text[:n], size-int64(n)), false
}

// binary returns a value of a binary MIME type.
func binary(mime string, raw json.RawMessage) (Value, bool) {
	if blob, ok := blobOf(mime, raw); ok {
		return Value{MIME: mime, Blob: blob}, true
	}
	text, ok := stringOf(raw)
	if !ok {
		return Value{}, false
	}
	text = strings.Map(func(c rune) rune { // notebooks break base64 into lines
		if c == '\n' || c == '\r' || c == ' ' {
			return -1
		}
		return c
	}, text)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 {
		return Value{}, false
	}
	return Value{MIME: mime, Bytes: b}, true
}

// blobOf returns the blob of a value that is stored as one.
func blobOf(mime string, raw json.RawMessage) (*spool.Blob, bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, false
	}
	var b spool.Blob
	if err := json.Unmarshal(raw, &b); err != nil || !strings.HasPrefix(string(b.Digest), "sha256:") {
		return nil, false
	}
	if b.MIME == "" {
		b.MIME = mime
	}
	return &b, true
}

// stringOf returns a JSON string, or a joined list of strings, which is how
// notebooks store lines.
func stringOf(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		return strings.Join(lines, ""), true
	}
	return "", false
}

func trimLineEnd(s string) string { return strings.TrimSuffix(s, "\n") }
