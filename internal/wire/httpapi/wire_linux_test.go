package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestWire sends the requests of testdata/*.txtar, in their order, and compares the
// answers, of which times, ids of requests and the like are left out. With -update
// it writes them. Another program checks each answer against the OpenAPI document.
//
// A line "token NAME SCOPES" of the comment makes a token, which requests name as
// $NAME; with a token the server admits nobody without.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	doc := newDescription(t)
	codes, names := make(map[string]bool), make(map[string]bool)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := httpapi.Options{Backend: openHost(t), Version: "0"}
			tokens := makeTokens(t, string(archive.Comment), &o)
			b := serve(t, o)
			for i := range archive.Files {
				f := &archive.Files[i]
				name, ok := strings.CutSuffix(f.Name, ".request")
				if !ok {
					continue
				}
				if i+1 == len(archive.Files) || archive.Files[i+1].Name != name+".response" {
					t.Fatalf("%s has no response", name)
				}
				got, status, header, body := exchange(t, b, tokens(string(f.Data)), doc)
				var p httpapi.Problem
				if header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(body, &p) == nil {
					codes[p.Code] = true
				}
				if status < 400 {
					names[doc.lastName] = true
				}
				want := &archive.Files[i+1]
				if httpapi.Update() {
					want.Data = []byte(got)
				} else if diff := cmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if httpapi.Update() {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, code := range httpapi.Codes() {
		if _, elsewhere := otherCodes[code]; !codes[code] && !elsewhere {
			t.Errorf("no file has the problem %s", code)
		}
	}
	for _, name := range httpapi.Names() {
		if !names[name] && !slices.Contains(otherNames, name) {
			t.Errorf("no file has a success of %s", name)
		}
	}
}

// otherCodes are the problems that no request alone makes, and where they are tested.
var otherCodes = map[string]string{
	"not_asked": "TestTurnRoutes", "not_retyped": "TestDangerousAsk", "queue_full": "TestProblems", "busy": "TestProblems", "closing": "TestStreamEndsWithTheServer", "trimmed": "TestProblems",
	"too_many_streams": "TestStreamsAreBounded", "too_many_failures": "TestProblems", "internal": "TestProblems", "start_other": "TestProblems",
	"start_limit": "TestProblems", "start_pty": "TestProblems", "backend_lost": "TestProblems", "no_space": "TestProblems", "no_form": "TestTurnRoutes",
	"bad_host": "TestPagesOfOthers", "bad_origin": "TestPagesOfOthers", "cross_site": "TestPagesOfOthers", "ended": "TestBackend", "unsupported": "TestBackend",
	"start_bad_format": "TestProblems", "too_large": "TestBodiesAreBounded", "expired": "TestCredentials", "rate": "TestRatesOfSubjects", "upgrade": "TestRPCRefuses",
}

// otherNames are the operations that need a kernel, a workspace or a cluster, or whose answers
// depend on time or do not end.
var otherNames = []string{"forkRun", "getForm", "getBlob", "beginTurn", "getTurn", "answerAsk", "inspectRun", "listChanges", "applyChanges", "discardChanges", "controlRun", "getResources", "getStorage",
	"signIn", "getSession", "signOut", "listTokens", "createToken", "revokeToken", "shareRun", "listShares", "revokeShare", "makeTicket", "watchRuns", "listAsks", "connect", "attachRun",
	"getAudit", "getMetrics", "probeStream", "probeEcho", "probeSocket", "listAgents", "listNodes", "putPresence"}

// makeTokens makes the tokens of a comment, and returns what puts them into a
// request.
func makeTokens(t *testing.T, comment string, o *httpapi.Options) func(string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.json")
	var pairs []string
	for line := range strings.Lines(comment) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "token" {
			continue
		}
		token := access.Token{Name: fields[1], Subject: fields[1]}
		for scope := range strings.SplitSeq(fields[2], ",") {
			token.Scopes = append(token.Scopes, access.Scope(scope))
		}
		_, secret, err := access.CreateToken(path, token)
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, "$"+fields[1], secret)
	}
	if len(pairs) > 0 {
		tokens, err := access.OpenTokens(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Auth = tokens
	}
	return strings.NewReplacer(pairs...).Replace
}

// exchange sends a request that is written as HTTP has it, without a version, and
// returns the answer as text.
func exchange(t *testing.T, b *rest, text string, doc *description) (answer string, status int, header http.Header, body []byte) {
	t.Helper()
	head, rest, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, ok := strings.Cut(lines[0], " ")
	if !ok {
		t.Fatalf("bad request %q", lines[0])
	}
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(strings.TrimSuffix(rest, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ": ")
		r.Header.Add(key, value)
	}
	client := &http.Client{Transport: b.client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	doc.check(t, r, resp, body)
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", resp.StatusCode)
	for _, key := range []string{"Allow", "Content-Type", "Etag", "Location", "Retry-After", "Www-Authenticate", "Spool-Last", "Spool-Next"} {
		if v := resp.Header.Get(key); v != "" {
			fmt.Fprintf(&out, "%s: %s\n", key, v)
		}
	}
	for key := range resp.Trailer {
		fmt.Fprintf(&out, "trailer %s: %s\n", key, resp.Trailer.Get(key))
	}
	var indented bytes.Buffer
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && json.Indent(&indented, bytes.TrimSpace(body), "", "  ") == nil {
		fmt.Fprintf(&out, "\n%s\n", indented.Bytes())
	} else if len(body) > 0 {
		fmt.Fprintf(&out, "\n%s", body)
		if !bytes.HasSuffix(body, []byte("\n")) {
			out.WriteByte('\n')
		}
	}
	answer = out.String()
	for _, n := range normals {
		answer = n.re.ReplaceAllString(answer, n.to)
	}
	return answer, resp.StatusCode, resp.Header, body
}

// normals replace what differs from one run of the test to the next.
var normals = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`rq-[a-z0-9]{16}`), "rq-X"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b1\d{12}\b`), "1000"}, // Unix milliseconds
	{regexp.MustCompile(`"pid": ?\d+`), `"pid":1`},
	{regexp.MustCompile(`"owner": ?"[^"]*"`), `"owner":"O"`},
	{regexp.MustCompile(`retry: \d+`), "retry: 1000"},
	{regexp.MustCompile(`"(bytes|read_bytes)": \d+`), `"$1": 1`},
	{regexp.MustCompile(`"(user_us|system_us|wall_ms)":( ?)\d+`), `"$1":${2}1`},
	{regexp.MustCompile(`,\s*"peak_memory_bytes": ?\d+`), ""}, // which is not always known
	{regexp.MustCompile(`"next": "[0-9a-z]{10,}\.`), `"next": "T.`},
}

// description checks answers against the OpenAPI document.
type description struct {
	router   routers.Router
	lastName string // of the operation that was checked
}

func newDescription(t *testing.T) *description {
	t.Helper()
	router, err := describedRoutes()
	if err != nil {
		t.Fatal(err)
	}
	return &description{router: router}
}

// describedRoutes reads the document.
var describedRoutes = sync.OnceValues(func() (routers.Router, error) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	doc.Servers = nil
	for _, form := range []string{"text/event-stream", "application/x-ndjson", "application/octet-stream", "text/plain"} {
		openapi3filter.RegisterBodyDecoder(form, openapi3filter.FileBodyDecoder)
	}
	return gorillamux.NewRouter(doc)
})

func (d *description) check(t *testing.T, r *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	name, known, err := compare(d.router, r, resp, body)
	d.lastName = name
	if !known && resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%s %s is not described, and has the status %d", r.Method, r.URL.Path, resp.StatusCode)
	}
	if err != nil {
		t.Errorf("%s %s: the answer is not as described: %v", r.Method, r.URL.Path, err)
	}
}

// compare compares an answer with the document. It returns the name of the operation, and
// whether there is one.
func compare(router routers.Router, r *http.Request, resp *http.Response, body []byte) (name string, known bool, err error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	bare := &http.Request{Method: method, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath}, Header: r.Header}
	route, params, err := router.FindRoute(bare)
	if err != nil { // there is no such address
		return "", false, nil
	}
	name = route.Operation.OperationID
	if r.Method == http.MethodHead {
		return name, true, nil
	}
	return name, true, openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

// described is the transport of the clients of all tests: each answer in JSON that it brings,
// unless it is a long one, must be as the document has it.
type described struct {
	t     *testing.T
	inner *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (d *described) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.inner.RoundTrip(r)
	if err != nil || d.t.Context().Err() != nil || r.Method == http.MethodHead || resp.Header.Get("Content-Encoding") != "" || resp.ContentLength < 0 || resp.ContentLength > 64<<10 || !strings.HasSuffix(resp.Header.Get("Content-Type"), "json") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), failing{err}), resp.Body}
	router, failed := describedRoutes()
	if failed != nil {
		d.t.Error(failed)
	} else if _, _, failed = compare(router, r, resp, body); failed != nil && err == nil {
		d.t.Errorf("%s %s: the answer is not as described: %v", r.Method, r.URL.Path, failed)
	}
	return resp, nil
}

// CloseIdleConnections is for [http.Client].
func (d *described) CloseIdleConnections() { d.inner.CloseIdleConnections() }

// failing is the end of a body: an error of the connection, or none.
type failing struct{ err error }

// Read implements [io.Reader].
func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
