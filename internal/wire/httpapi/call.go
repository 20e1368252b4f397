package httpapi

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/strict"
)

// call is one request and its answer.
type call struct {
	server  *Server
	op      *operation
	w       http.ResponseWriter
	patient *patientWriter // w, after the gate
	r       *http.Request
	id      string // of the request
	query   url.Values
	subject *access.Subject
	backend spool.Backend // what the subject may use
	given   []byte        // the body, if it did not come with the request

	ctx    context.Context // ends with the request, the server or the right to be here
	cancel context.CancelCauseFunc
}

// run returns the id in the path.
func (c *call) run() spool.RunID { return spool.RunID(c.r.PathValue("run")) }

// handle returns a handle to the run in the path.
func (c *call) handle() *spool.Run { return spool.Attach(c.backend, c.run()) }

// paramKind is what the text of a parameter must be.
type paramKind int

const (
	textParam paramKind = iota
	numberParam
	flagParam
	timeParam
)

// param is a parameter of the query.
type param struct {
	name     string
	kind     paramKind
	many     bool // may be given several times
	min, max int64
	most     func(*Limits) int64 // the limit that max is; nil if it is none
	oneOf    []string
	doc      string
	cursor   bool // what is wrong with it is a bad_cursor
}

// checkQuery checks the query against the parameters of the operation.
func (c *call) checkQuery() error {
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return problemf("invalid", "parse the query: %s", err)
	}
	for name, values := range c.query {
		i := slices.IndexFunc(c.op.query, func(p param) bool { return p.name == name })
		if i < 0 {
			return c.unknownParam(name)
		}
		p := &c.op.query[i]
		if len(values) > 1 && !p.many {
			return badParam(p, "is given several times")
		}
		for _, v := range values {
			if err := p.check(v, &c.server.limits); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *call) unknownParam(name string) error {
	names := make([]string, len(c.op.query))
	for i, p := range c.op.query {
		names[i] = p.name
	}
	p := problemf("unknown_member", "unknown parameter %q; the parameters are %s", name, strings.Join(names, ", "))
	if len(names) == 0 {
		p.Detail = fmt.Sprintf("unknown parameter %q; the address takes none", name)
	}
	e := MemberError{Pointer: name, Detail: "there is no such parameter"}
	if near, ok := strict.Nearest(name, names); ok {
		e.Detail = fmt.Sprintf("did you mean %q?", near)
		p.Detail = fmt.Sprintf("unknown parameter %q; did you mean %q?", name, near)
	}
	p.Errors = []MemberError{e}
	return p
}

func (p *param) check(v string, l *Limits) error {
	switch p.kind {
	case numberParam:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return badParam(p, fmt.Sprintf("must be a whole number, not %.100q", v))
		}
		most := p.max
		if p.most != nil {
			most = p.most(l)
		}
		if n < p.min || n > most {
			return badParam(p, fmt.Sprintf("must be from %d to %d, not %d", p.min, most, n))
		}
	case flagParam:
		if _, ok := parseFlag(v); !ok {
			return badParam(p, fmt.Sprintf("must be true or false, not %.100q", v))
		}
	case timeParam:
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return badParam(p, fmt.Sprintf("must be a time such as 2026-01-02T15:04:05Z, not %.100q", v))
		}
	case textParam:
		if len(p.oneOf) > 0 && !slices.Contains(p.oneOf, v) {
			return badParam(p, fmt.Sprintf("must be %s, not %.100q", strings.Join(p.oneOf, " or "), v))
		}
	}
	return nil
}

func badParam(p *param, detail string) error {
	code := "invalid"
	if p.cursor {
		code = "bad_cursor"
	}
	problem := problemf(code, "the parameter %s %s", p.name, detail)
	problem.Errors = []MemberError{{p.name, detail}}
	return problem
}

func parseFlag(v string) (value, ok bool) {
	switch v {
	case "1", "true", "":
		return true, true
	case "0", "false":
		return false, true
	}
	return false, false
}

// The values of parameters, which checkQuery has checked.

func (c *call) text(name string) string { return c.query.Get(name) }

func (c *call) number(name string, otherwise int64) int64 {
	if !c.query.Has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(c.query.Get(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (c *call) flag(name string) bool {
	value, _ := parseFlag(c.query.Get(name))
	return value && c.query.Has(name)
}

func (c *call) when(name string) time.Time {
	t, err := time.Parse(time.RFC3339, c.query.Get(name))
	if err != nil {
		return time.Time{}
	}
	return t
}

// wait returns how long the client wants to wait.
func (c *call) wait() time.Duration {
	return min(time.Duration(c.number("wait_ms", 0))*time.Millisecond, c.server.limits.LongPoll)
}

// decode decodes the JSON body into v, a pointer to a struct. what names it in
// errors.
func (c *call) decode(v any, what string) error {
	b, err := c.body("application/json", c.server.limits.Body)
	if err != nil {
		return err
	}
	if err := strict.Unmarshal(b, v, what); err != nil {
		return bodyProblem(err)
	}
	return nil
}

// body reads the body, which must have a content type.
func (c *call) body(contentType string, limit int64) ([]byte, error) {
	if got, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || got != contentType {
		return nil, problemf("media_type", "the body must have the content type %s", contentType)
	}
	return c.readBody(limit)
}

func (c *call) readBody(limit int64) ([]byte, error) {
	if c.given != nil {
		return c.given, nil
	}
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyFor)) // not every connection has deadlines
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, bodyProblem(err)
		}
		return nil, problemf("invalid", "read the body: %s", err)
	}
	return b, nil
}

// appender encodes itself without reflection.
type appender interface{ AppendJSON([]byte) []byte }

// reply answers with JSON.
func (c *call) reply(status int, v any) error {
	var b []byte
	if a, ok := v.(appender); ok {
		b = a.AppendJSON(nil)
	} else {
		var err error
		if b, err = json.Marshal(v); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	return c.send(status, "application/json", append(b, '\n'))
}

// send answers with bytes, compressed if the client asks for that.
func (c *call) send(status int, contentType string, b []byte) error {
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	if len(b) > gzipFrom && c.takesGzip() {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		c.w.WriteHeader(status)
		z := gzip.NewWriter(c.w)
		_, _ = z.Write(b) // the client may have left
		_ = z.Close()
		return nil
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(b)
	return nil
}

func (c *call) takesGzip() bool {
	for part := range strings.SplitSeq(c.r.Header.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if coding == "gzip" {
			return strings.ReplaceAll(weight, " ", "") != "q=0"
		}
	}
	return false
}

// accepts returns the first of the forms that the header Accept names, or the
// last form if the client takes anything.
func (c *call) accepts(forms ...string) (string, error) {
	header := strings.Join(c.r.Header.Values("Accept"), ",")
	if header == "" {
		return forms[len(forms)-1], nil
	}
	for part := range strings.SplitSeq(header, ",") {
		name, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		major, minor, _ := strings.Cut(name, "/")
		if name == "*/*" {
			return forms[len(forms)-1], nil
		}
		for i := len(forms) - 1; i >= 0; i-- {
			if of, _, _ := strings.Cut(forms[i], "/"); name == forms[i] || minor == "*" && major == of {
				return forms[i], nil
			}
		}
	}
	return "", problemf("not_acceptable", "the address has the forms %s", strings.Join(forms, ", "))
}
