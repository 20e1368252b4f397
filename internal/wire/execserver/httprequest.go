package execserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/wire/rpc"
)

const (
	// maxResponseBody limits a body that is not streamed: in base64 it must fit
	// into a message of 64 MiB.
	maxResponseBody = 45 << 20
	// unknownBody is how much room a body of unknown length needs at first.
	unknownBody = 64 << 10
	// bodyDelta is the size of a chunk of a streamed body.
	bodyDelta = 256 << 10
	// maxStreams limits the streamed bodies of a connection.
	maxStreams   = 256
	maxRedirects = 10
)

// httpRequests serves http/request for one connection and owns its streamed
// bodies.
type httpRequests struct {
	notify    func(method string, params any)
	roomFor   roomForAnswer
	contain   func(do func()) (returned bool) // ends the connection after a panic
	transport *http.Transport
	roots     func() error // adds the configured root certificates to transport, once
	cookies   *routeCookies
	ctx       context.Context // ends with close
	cancel    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	streams map[string]bool // ids of requests with a streamed body
	done    sync.WaitGroup
}

// newHTTPRequests returns the HTTP state of a connection. It reads streamed
// bodies only as fast as notify returns.
func newHTTPRequests(notify func(method string, params any), roomFor roomForAnswer, contain func(do func()) (returned bool)) *httpRequests {
	ctx, cancel := context.WithCancel(context.Background())
	h := &httpRequests{
		notify:  notify,
		cookies: newRouteCookies(),
		roomFor: roomFor,
		contain: contain,
		ctx:     ctx,
		cancel:  cancel,
		transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DisableCompression:    true, // bodies are passed on unchanged
			ForceAttemptHTTP2:     true,
			TLSHandshakeTimeout:   30 * time.Second,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
			MaxIdleConnsPerHost:   8,
		},
		streams: make(map[string]bool),
	}
	h.roots = sync.OnceValue(func() error {
		roots, err := trustedRoots()
		if roots != nil {
			h.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		}
		return err
	})
	return h
}

// close ends all requests and waits for their goroutines. The caller must first
// unblock a notify that waits for the connection.
func (h *httpRequests) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel()
	h.done.Wait()
	h.transport.CloseIdleConnections()
}

// httpHeader is one header line. If it names an environment variable of the
// server, the variable's value is appended to the value.
type httpHeader struct {
	Name        string  `json:"name"`
	Value       string  `json:"value"`
	ValueEnvVar *string `json:"valueEnvVar,omitempty"`
}

// UnmarshalJSON refuses a header without name or value.
func (h *httpHeader) UnmarshalJSON(b []byte) error {
	type plain httpHeader
	return decode(b, (*plain)(h), "name", "value")
}

// httpParams are the params of http/request.
type httpParams struct {
	Method         string       `json:"method"`
	URL            string       `json:"url"`
	RequestID      string       `json:"requestId"`
	Headers        []httpHeader `json:"headers"`
	Body           *string      `json:"bodyBase64"`
	TimeoutMS      *uint64      `json:"timeoutMs"`
	RedirectPolicy *string      `json:"redirectPolicy"`
	StreamResponse bool         `json:"streamResponse"`
}

// httpResult is the result of http/request.
type httpResult struct {
	Status  int          `json:"status"`
	Headers []httpHeader `json:"headers"`
	Body    []byte       `json:"bodyBase64"`
}

// handle serves http/request. A streamed body continues after handle returns.
func (h *httpRequests) handle(ctx context.Context, params json.RawMessage) (any, error) {
	var p httpParams
	if err := decode(params, &p, "method", "url", "requestId"); err != nil {
		return nil, err
	}
	client := http.Client{Transport: h.transport, CheckRedirect: checkRedirect, Jar: h.cookies}
	if p.RedirectPolicy != nil {
		switch *p.RedirectPolicy {
		case "follow":
		case "stop":
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		default:
			return nil, unknownVariant(*p.RedirectPolicy, "`follow` or `stop`")
		}
	}
	req, err := p.request()
	if err != nil {
		return nil, err
	}
	if err := h.roots(); err != nil {
		return nil, rpc.Errorf(rpc.CodeInternal, "http/request failed: %s", err)
	}
	if req.Header["Cookie"] != nil {
		client.Jar = nil // the client's cookies are the only ones
	}

	// Until there is an answer the call's ctx may end the request. After that
	// only the connection and the request's own timeout do.
	reqCtx, cancel := context.WithCancel(h.ctx)
	if p.TimeoutMS != nil {
		timeout := time.Duration(min(*p.TimeoutMS, uint64(365*24*time.Hour/time.Millisecond))) * time.Millisecond
		reqCtx, cancel = withTimeout(reqCtx, cancel, timeout)
	}
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	if err := h.begin(&p); err != nil {
		cancel()
		return nil, err
	}
	finish := func() {
		cancel()
		h.end(&p)
	}
	resp, err := client.Do(req.WithContext(reqCtx))
	if err != nil {
		finish()
		return nil, sendError(req, err)
	}
	result := httpResult{Status: resp.StatusCode, Headers: responseHeaders(resp), Body: []byte{}}
	if p.StreamResponse {
		go func() { // begin added it to the wait group
			defer finish()
			h.contain(func() { h.stream(p.RequestID, resp.Body) })
		}()
		return result, nil
	}
	defer finish()
	size := min(resp.ContentLength, maxResponseBody)
	if size < 0 { // unknown
		size = unknownBody
	}
	room, err := h.roomFor(reqCtx, size)
	if err != nil {
		_ = resp.Body.Close()
		return nil, sendError(req, err)
	}
	// From here on the room is given back with the answer, an error included.
	result.Body, err = readBody(resp.Body)
	return &sized{result: result, room: room}, err
}

func withTimeout(ctx context.Context, cancel context.CancelFunc, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	return ctx, func() { stop(); cancel() }
}

// begin counts a request until end, and reserves its id if the body is
// streamed.
func (h *httpRequests) begin(p *httpParams) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return rpc.Errorf(rpc.CodeInternal, "http/request failed: the connection is closing")
	}
	if p.StreamResponse {
		switch {
		case h.streams[p.RequestID]:
			return rpc.Errorf(rpc.CodeInvalidParams, "http/request streamResponse requestId `%s` is already active", p.RequestID)
		case len(h.streams) >= maxStreams:
			return rpc.Errorf(rpc.CodeInternal, "http/request failed: at most %d responses may be streamed per connection", maxStreams)
		}
		h.streams[p.RequestID] = true
	}
	h.done.Add(1)
	return nil
}

func (h *httpRequests) end(p *httpParams) {
	if p.StreamResponse {
		h.mu.Lock()
		delete(h.streams, p.RequestID)
		h.mu.Unlock()
	}
	h.done.Done()
}

// bodyDeltaParams are the params of http/request/bodyDelta.
type bodyDeltaParams struct {
	RequestID string  `json:"requestId"`
	Seq       uint64  `json:"seq"`
	Delta     []byte  `json:"deltaBase64"`
	Done      bool    `json:"done"`
	Error     *string `json:"error"`
}

// stream sends a body in chunks, then a final chunk with the error, if any.
func (h *httpRequests) stream(id string, body io.ReadCloser) {
	defer body.Close()
	buf := make([]byte, bodyDelta)
	for seq := uint64(1); ; {
		n, err := body.Read(buf)
		if h.ctx.Err() != nil {
			return // the connection has ended
		}
		if n > 0 {
			h.notify("http/request/bodyDelta", bodyDeltaParams{RequestID: id, Seq: seq, Delta: bytes.Clone(buf[:n])})
			seq++
		}
		if err == nil {
			continue
		}
		last := bodyDeltaParams{RequestID: id, Seq: seq, Delta: []byte{}, Done: true}
		if err != io.EOF {
			text := "error decoding response body: " + err.Error()
			last.Error = &text
		}
		h.notify("http/request/bodyDelta", last)
		return
	}
}

// readBody reads a body that is part of the answer, up to the limit.
func readBody(body io.ReadCloser) ([]byte, error) {
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxResponseBody+1))
	switch {
	case err != nil:
		return nil, rpc.Errorf(rpc.CodeInternal, "failed to read http/request response body: %s", err)
	case len(b) > maxResponseBody:
		return nil, rpc.Errorf(rpc.CodeInternal, "failed to read http/request response body: it is larger than %d bytes; use streamResponse", maxResponseBody)
	}
	return b, nil
}

var errRedirects = errors.New("too many redirects")

func checkRedirect(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errRedirects
	}
	return nil
}

// sendError describes a request that got no response. Its data holds the cause.
func sendError(req *http.Request, err error) error {
	if errors.Is(err, errRedirects) {
		return rpc.Errorf(rpc.CodeInternal, "http/request failed: %s", errRedirects)
	}
	u := *req.URL
	u.User = nil
	e := rpc.Errorf(rpc.CodeInternal, "http/request failed: error sending request for url (%s)", &u)
	cause := err
	var ue *url.Error
	if errors.As(err, &ue) {
		cause = ue.Err // the URL may contain a password
	}
	if data, err := json.Marshal(map[string]string{"cause": cause.Error()}); err == nil {
		e.Data = data
	}
	return e
}

// request checks the params and builds the request they describe.
func (p *httpParams) request() (*http.Request, error) {
	invalid := func(format string, args ...any) (*http.Request, error) {
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request "+format, args...)
	}
	if !isToken(p.Method) {
		return invalid("method is invalid: invalid HTTP method")
	}
	u, err := url.Parse(strings.TrimSpace(p.URL))
	switch {
	case err != nil:
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return invalid("url is invalid: %s", err)
	case u.Scheme == "":
		return invalid("url is invalid: relative URL without a base")
	case u.Scheme != "http" && u.Scheme != "https":
		return invalid("only supports http and https URLs, got %s", u.Scheme)
	case u.Hostname() == "":
		return invalid("url is invalid: empty host")
	}
	header, err := p.header()
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: p.Method, URL: u, Host: u.Host, Header: header}
	if host := header["Host"]; len(host) > 0 {
		req.Host = host[0]
		delete(header, "Host")
	}
	if p.Body != nil {
		body, err := decodeBase64(*p.Body)
		if err != nil {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "%s", err)
		}
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		if req.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("read request body: %w", err)
		}
		if len(body) == 0 {
			req.Body = http.NoBody
		}
	}
	return req, nil
}

// header builds the header of a request and keeps the order of repeated names.
func (p *httpParams) header() (http.Header, error) {
	header := make(http.Header)
	for _, h := range p.Headers {
		if !isToken(h.Name) {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request header name is invalid: invalid HTTP header name")
		}
		value := h.Value
		if h.ValueEnvVar != nil {
			name := *h.ValueEnvVar
			if isDenied(name) {
				return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request header %s cannot use executor environment variable %s", h.Name, name)
			}
			v, ok := os.LookupEnv(name)
			if !ok {
				return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request header %s requires executor environment variable %s", h.Name, name)
			}
			if v == "" {
				return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request header %s requires a non-empty executor environment variable %s", h.Name, name)
			}
			value += v
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "http/request header value is invalid for %s: failed to parse header value", h.Name)
		}
		header.Add(h.Name, value)
	}
	if header["Accept"] == nil {
		header["Accept"] = []string{"*/*"}
	}
	if header["User-Agent"] == nil {
		header["User-Agent"] = []string{""} // suppresses the default of net/http
	}
	return header, nil
}

// isToken reports whether s is a valid method or header name.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// deniedVariables are the variables that hold credentials of the account that
// runs the server. No header may send them. The names are those that codex
// denies; an MCP server's own token may have any other name.
var deniedVariables = []string{
	"AWS_ACCESS_KEY_ID",
	"AWS_SECRET_ACCESS_KEY",
	"AWS_SESSION_TOKEN",
	"AZURE_CLIENT_SECRET",
	"AZURE_FEDERATED_TOKEN_FILE",
	"CODEX_ACCESS_TOKEN",
	"CODEX_API_KEY",
	"CODEX_CONNECTORS_TOKEN",
	"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
	"GOOGLE_APPLICATION_CREDENTIALS",
	"OPENAI_API_KEY",
	"OPENAI_FEDERATION_RULE_ID",
	"OPENAI_IDENTITY_TOKEN_FILE",
	"OPENAI_WORKLOAD_IDENTITY_CONTEXT",
}

// isDenied reports whether a header must not send a variable: one of
// [deniedVariables] in any case, or a variable of this server.
func isDenied(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(deniedVariables, name) || strings.HasPrefix(name, "SPOOL_")
}

// responseHeaders lists a response's header, names in lower case and sorted,
// repeated names in order. It omits values that are not valid in a JSON string.
func responseHeaders(resp *http.Response) []httpHeader {
	header := resp.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	if len(resp.TransferEncoding) > 0 { // net/http removes it from the header
		header["Transfer-Encoding"] = resp.TransferEncoding
	}
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	list := make([]httpHeader, 0, len(names))
	for _, name := range names {
		for _, value := range header[name] {
			if utf8.ValidString(value) {
				list = append(list, httpHeader{Name: strings.ToLower(name), Value: value})
			}
		}
	}
	return list
}
