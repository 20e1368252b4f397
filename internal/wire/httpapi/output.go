package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/python"
)

// output answers with the bytes that a run wrote.
func (c *call) output() error {
	streams := c.query["stream"]
	after, skip, err := spool.Seq(c.number("after", 0)), c.number("skip_bytes", 0), error(nil)
	if tail := c.number("tail_bytes", -1); tail >= 0 {
		if c.query.Has("after") {
			return problemf("invalid", "after and tail_bytes exclude each other")
		}
		var before int64 // of the event in which the tail begins
		after, before, err = c.tail(tail, streams)
		skip += before
	}
	if err != nil {
		return err
	}
	follow, strip := c.flag("follow"), c.text("ansi") == "strip"
	if follow {
		end, err := c.server.streams.begin(c)
		if err != nil {
			return err
		}
		defer end()
	}
	page, err := c.backend.Read(c.ctx, c.run(), spool.Query{After: after, MaxBytes: c.server.limits.StreamPage})
	if err != nil {
		return err
	}
	h := c.unbuffered("application/octet-stream")
	h.Set("Trailer", "Spool-Next")
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(c.w)
	last := page.Info.Last
	var part []byte // small events are written together
	for {
		for i := range page.Events {
			e := &page.Events[i]
			if e.Kind != spool.KindOutput || len(streams) > 0 && !slices.Contains(streams, string(e.Stream)) {
				continue
			}
			passed := min(skip, int64(len(e.Bytes)))
			skip -= passed
			if b := e.Bytes[passed:]; strip {
				part = visible.AppendUnstyled(part, b)
			} else {
				part = append(part, b...)
			}
			if len(part) < partBytes {
				continue
			}
			if _, err := c.w.Write(part); err != nil {
				return nil // the client left
			}
			part = part[:0]
		}
		if len(part) > 0 {
			if _, err := c.w.Write(part); err != nil {
				return nil
			}
			if part = part[:0]; page.Next >= page.Info.Last && cap(part) > idleBytes {
				part = nil // many streams wait
			}
		}
		after = max(after, page.Next)
		h.Set("Spool-Next", strconv.FormatUint(uint64(after), 10))
		if page.End() || !follow && after >= last {
			return nil
		}
		if follow {
			if err := control.Flush(); err != nil {
				return nil
			}
		}
		q := spool.Query{After: after, MaxBytes: c.server.limits.StreamPage}
		if follow {
			q.Wait = c.server.limits.LongPoll
		}
		if page, err = c.backend.Read(c.ctx, c.run(), q); err != nil || !follow && len(page.Events) == 0 {
			return nil // the trailer says how far it came
		}
	}
}

// form answers with one form of a display or a result.
func (c *call) form() error {
	e, err := c.eventAt()
	if err != nil {
		return err
	}
	name := c.r.PathValue("type") + "/" + c.r.PathValue("subtype")
	var d python.Display
	if e.Kind != python.KindDisplay && e.Kind != python.KindResult || json.Unmarshal(e.Data, &d) != nil {
		return problemf("no_form", "event %d is %s, which has no forms", e.Seq, e.Kind)
	}
	value, ok := d.Bundle[name]
	if !ok {
		return problemf("no_form", "event %d has no form %s", e.Seq, name)
	}
	safeContent(c.w.Header(), name)
	if c.flag("scripts") && (name == "text/html" || name == "image/svg+xml") {
		c.w.Header().Set("Content-Security-Policy", scriptsPolicy)
	}
	var blob spool.Blob
	if json.Unmarshal(value, &blob) == nil && blob.Digest != "" {
		return c.sendBlob(blob.Digest, c.server.limits.Form)
	}
	b := []byte(value)
	var text string
	if json.Unmarshal(value, &text) == nil {
		b = []byte(text)
		if isBytes(name) {
			if b, err = base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err != nil {
				return fmt.Errorf("decode the form %s of event %d: %w", name, e.Seq, err)
			}
		}
	}
	c.w.Header().Set("ETag", fmt.Sprintf("\"%d-%s\"", e.Seq, strings.ReplaceAll(name, `"`, "")))
	return c.sendContent(bytes.NewReader(b), c.server.limits.Form)
}

// isBytes reports whether a form is base64 in the log.
func isBytes(name string) bool {
	return !strings.HasPrefix(name, "text/") && name != "image/svg+xml" && name != "application/javascript" && !strings.HasSuffix(name, "json")
}

// scriptsPolicy is for a display whose scripts a person wants to run. Its origin is
// none, so that it reaches nothing of ours, and it has no network.
const scriptsPolicy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:; " +
	"style-src 'unsafe-inline'; font-src data:; frame-ancestors 'self'"

// safeContent sets the headers of content that a run made: it is what it is said to
// be, and a browser executes nothing of it.
func safeContent(h http.Header, name string) {
	h.Set("X-Frame-Options", "SAMEORIGIN")
	switch {
	case name == "image/png", name == "image/jpeg", name == "image/gif", name == "image/webp":
		h.Set("Content-Type", name)
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'self'")
	case name == "image/svg+xml", name == "text/html", name == "application/pdf":
		h.Set("Content-Type", name)
		if name == "text/html" {
			h.Set("Content-Type", "text/html; charset=utf-8")
		}
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; font-src data:; frame-ancestors 'self'")
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		h.Set("Content-Type", "application/json")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	case strings.HasPrefix(name, "text/"):
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	default:
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", "attachment")
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	}
}

// blob answers with a blob of the run.
func (c *call) blob() error {
	name := "application/octet-stream"
	if t := c.text("type"); t != "" {
		parsed, _, err := mime.ParseMediaType(t)
		if err != nil {
			return problemf("invalid", "the parameter type must be a content type, not %.100q", t)
		}
		name = parsed
	}
	safeContent(c.w.Header(), name)
	return c.sendBlob(spool.Digest(c.r.PathValue("digest")), c.server.limits.Blob)
}

// sendBlob answers with a blob, or a part of it, of at most so many bytes. Its content
// never changes.
func (c *call) sendBlob(d spool.Digest, most int64) error {
	r, err := c.backend.Blob(c.ctx, c.run(), d)
	if err != nil {
		return err
	}
	defer r.Close()
	h := c.w.Header()
	h.Set("ETag", `"`+string(d)+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	if s, ok := r.(io.ReadSeeker); ok {
		return c.sendContent(s, most)
	}
	if c.r.Header.Get("If-None-Match") == h.Get("ETag") {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	// How large it is shows at its end only.
	n, err := io.Copy(c.w, io.LimitReader(r, most+1))
	if n > most || err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

// sendContent answers with content or the parts of it that the header Range names. An answer
// of more bytes than most is refused: the client asks for parts.
func (c *call) sendContent(content io.ReadSeeker, most int64) error {
	w := &boundedWriter{ResponseWriter: c.w, most: most, head: c.r.Method == http.MethodHead}
	http.ServeContent(w, c.r, "", time.Time{}, content)
	if w.size <= most {
		return nil
	}
	h := c.w.Header()
	for _, name := range []string{"Content-Length", "Content-Range", "Content-Disposition"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	p := problemf("too_large", "the answer would have %d bytes, and may have %d", w.size, most)
	p.Hint = "ask for parts with the header Range"
	return p
}

// boundedWriter writes an answer unless it has too many bytes.
type boundedWriter struct {
	http.ResponseWriter
	most int64
	head bool  // the answer has no body
	size int64 // of an answer that was not written
}

// WriteHeader implements [http.ResponseWriter].
func (w *boundedWriter) WriteHeader(status int) {
	if n, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64); err == nil && n > w.most && !w.head {
		w.size = n
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *boundedWriter) Write(p []byte) (int, error) {
	if w.size > 0 {
		return 0, errTooLarge
	}
	return w.ResponseWriter.Write(p)
}

var errTooLarge = errors.New("the answer is too large")
