package execserver

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// httpTest is the HTTP state of a connection, a server to request from, and the
// notifications.
type httpTest struct {
	*testing.T
	requests *httpRequests
	url      string
	deltas   chan bodyDeltaParams
	release  chan struct{} // unblocks /wait and the rest of /drip
}

func newHTTPTest(t *testing.T) *httpTest {
	leaktest.Check(t)
	ht := &httpTest{T: t, deltas: make(chan bodyDeltaParams, 4096), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header()["Date"] = nil
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s host=%s x=%v e=%v accept=%v ua=%v %s", r.Method, r.Host, r.Header["X-A"], r.Header["E"], r.Header["Accept"], r.Header["User-Agent"], body)
	})
	mux.HandleFunc("/redirect/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		http.Redirect(w, r, "/echo", code)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("abc"))
	})
	mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ht.release:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("one"))
		w.(http.Flusher).Flush()
		select {
		case <-ht.release:
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("two"))
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxResponseBody>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	ht.url = server.URL
	ht.requests = newHTTPRequests(func(method string, params any) {
		if method != "http/request/bodyDelta" {
			t.Errorf("notified %s", method)
		}
		ht.deltas <- params.(bodyDeltaParams)
	}, func(context.Context, int64) (int64, error) { return 0, nil }, func(do func()) bool { do(); return true })
	t.Cleanup(ht.requests.close)
	return ht
}

// call sends a request; $U in the params is the URL of the server.
func (t *httpTest) call(params string) (httpResult, error) {
	t.Helper()
	result, err := t.requests.handle(t.Context(), json.RawMessage(strings.ReplaceAll(params, "$U", t.url)))
	if err != nil {
		return httpResult{}, err
	}
	if s, ok := result.(*sized); ok {
		result = s.result
	}
	return result.(httpResult), nil
}

func TestHTTPRequest(t *testing.T) {
	t.Setenv("SOME_SECRET", "hunter2")
	t.Setenv("NODE_REPL_AUTH_TOKEN", "repl")
	t.Setenv("CODEX_ANYTHING", "any")
	ht := newHTTPTest(t)
	host := strings.TrimPrefix(ht.url, "http://")
	for _, tt := range []struct{ params, want string }{
		{`"method":"GET","url":"$U/echo"`, "200 GET host=" + host + " x=[] e=[] accept=[*/*] ua=[] "},
		{`"method":"POST","url":"$U/echo","bodyBase64":"aGk="`, "200 POST host=" + host + " x=[] e=[] accept=[*/*] ua=[] hi"},
		{`"method":"PUT","url":"$U/echo","headers":[{"name":"X-A","value":"1"},{"name":"x-a","value":"2"},{"name":"Host","value":"foo"},{"name":"user-agent","value":"me"},{"name":"e","value":"Bearer ","valueEnvVar":"SOME_SECRET"}]`,
			"200 PUT host=foo x=[1 2] e=[Bearer hunter2] accept=[*/*] ua=[me] "},
		{`"method":"GET","url":"$U/echo","headers":[{"name":"e","value":"","valueEnvVar":"NODE_REPL_AUTH_TOKEN"},{"name":"e","value":"","valueEnvVar":"CODEX_ANYTHING"}]`,
			"200 GET host=" + host + " x=[] e=[repl any] accept=[*/*] ua=[] "},
		{`"method":"HEAD","url":"$U/echo"`, "200 "},
		{`"method":"POST","url":"$U/redirect/302","bodyBase64":"aGk="`, "200 GET host=" + host + " x=[] e=[] accept=[*/*] ua=[] "},
		{`"method":"POST","url":"$U/redirect/307","bodyBase64":"aGk=","redirectPolicy":"follow"`, "200 POST host=" + host + " x=[] e=[] accept=[*/*] ua=[] hi"},
		{`"method":"POST","url":"$U/redirect/307","bodyBase64":"aGk=","redirectPolicy":"stop"`, "307 "},
	} {
		got, err := ht.call(`{"requestId":"r",` + tt.params + `}`)
		if text := fmt.Sprintf("%d %s", got.Status, got.Body); err != nil || text != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.params, text, err, tt.want)
		}
	}
	got, err := ht.call(`{"requestId":"r","method":"GET","url":"$U/echo"}`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got.Headers)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"set-cookie","value":"a=1"},{"name":"set-cookie","value":"b=2"}`; !strings.Contains(string(b), want) {
		t.Errorf("headers %s, want %s in it", b, want)
	}
}

func TestHTTPRequestErrors(t *testing.T) {
	for _, name := range deniedVariables {
		t.Setenv(name, "secret")
	}
	t.Setenv("SPOOL_TOKEN", "secret")
	t.Setenv("EMPTY_VALUE", "")
	t.Setenv("BROKEN_VALUE", "a\nb")
	ht := newHTTPTest(t)
	header := func(h string) string { return `"method":"GET","url":"$U/echo","headers":[` + h + `]` }
	for _, tt := range []struct{ params, want string }{
		{`"method":"G ET","url":"$U/"`, "-32602 http/request method is invalid: invalid HTTP method"},
		{`"method":"","url":"$U/"`, "-32602 http/request method is invalid: invalid HTTP method"},
		{`"method":"GET","url":"ftp://127.0.0.1/"`, "-32602 http/request only supports http and https URLs, got ftp"},
		{`"method":"GET","url":"/x"`, "-32602 http/request url is invalid: relative URL without a base"},
		{`"method":"GET","url":"http://"`, "-32602 http/request url is invalid: empty host"},
		{`"method":"GET","url":"$U/","bodyBase64":"!"`, "-32602 Invalid symbol 33, offset 0."},
		{`"method":"GET","url":"$U/","redirectPolicy":"x"`, "-32602 unknown variant `x`, expected `follow` or `stop`"},
		{`"method":"GET"`, "-32602 missing field `url`"},
		{header(`{"name":"a b","value":"x"}`), "-32602 http/request header name is invalid: invalid HTTP header name"},
		{header(`{"name":"a","value":"x\n"}`), "-32602 http/request header value is invalid for a: failed to parse header value"},
		{header(`{"name":"a"}`), "-32602 missing field `value`"},
		{header(`{"name":"a","value":"","valueEnvVar":"EMPTY_VALUE"}`), "-32602 http/request header a requires a non-empty executor environment variable EMPTY_VALUE"},
		{header(`{"name":"a","value":"","valueEnvVar":"UNSET_VALUE"}`), "-32602 http/request header a requires executor environment variable UNSET_VALUE"},
		{header(`{"name":"a","value":"","valueEnvVar":"BROKEN_VALUE"}`), "-32602 http/request header value is invalid for a: failed to parse header value"},
		{header(`{"name":"a","value":"","valueEnvVar":"codex_api_key"}`), "-32602 http/request header a cannot use executor environment variable codex_api_key"},
		{header(`{"name":"a","value":"","valueEnvVar":"SPOOL_TOKEN"}`), "-32602 http/request header a cannot use executor environment variable SPOOL_TOKEN"},
		{header(`{"name":"a","value":"","valueEnvVar":"OPENAI_API_KEY"}`), "-32602 http/request header a cannot use executor environment variable OPENAI_API_KEY"},
		{`"method":"GET","url":"http://u:p@127.0.0.1:1/a?x=1"`, "-32603 http/request failed: error sending request for url (http://127.0.0.1:1/a?x=1)"},
		{`"method":"GET","url":"$U/loop"`, "-32603 http/request failed: too many redirects"},
		{`"method":"GET","url":"$U/wait","timeoutMs":20`, "-32603 http/request failed: error sending request for url ($U/wait)"},
		{`"method":"GET","url":"$U/cut"`, "-32603 failed to read http/request response body: unexpected EOF"},
		{`"method":"GET","url":"$U/big"`, "-32603 failed to read http/request response body: it is larger than 47185920 bytes; use streamResponse"},
	} {
		_, err := ht.call(`{"requestId":"r",` + tt.params + `}`)
		want := strings.ReplaceAll(tt.want, "$U", ht.url)
		if got := answerText(t, nil, err); got != want {
			t.Errorf("%s\n got %s\nwant %s", tt.params, got, want)
		}
	}
	_, err := ht.call(`{"method":"GET","url":"$U/"}`)
	if got := answerText(t, nil, err); got != "-32602 missing field `requestId`" {
		t.Error(got)
	}
}

func TestDeniedVariables(t *testing.T) {
	ht := newHTTPTest(t)
	for _, name := range deniedVariables {
		t.Setenv(name, "secret")
		_, err := ht.call(`{"requestId":"r","method":"GET","url":"$U/echo","headers":[{"name":"a","value":"","valueEnvVar":"` + name + `"}]}`)
		if got, want := answerText(t, nil, err), "-32602 http/request header a cannot use executor environment variable "+name; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestRootCertificatesAndRouteCookies requests chatgpt.com from a server of this
// test, whose certificate only CODEX_CA_CERTIFICATE names.
func TestRootCertificatesAndRouteCookies(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{"__cflb=west; Path=/a; Secure; HttpOnly", "session=secret; Path=/", "cf_chl_x=1"}
		fmt.Fprintf(w, "%s %v", r.Host, r.Header["Cookie"])
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not trust it is expected
	server.StartTLS()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	connect := func() *httpTest {
		ht := newHTTPTest(t)
		ht.requests.transport.Proxy = nil
		ht.requests.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
		return ht
	}
	get := func(ht *httpTest, url, headers string) string {
		t.Helper()
		r, err := ht.call(`{"requestId":"r","method":"GET","url":"` + url + `","headers":[` + headers + `]}`)
		if err != nil {
			return answerText(t, nil, err)
		}
		return string(r.Body)
	}

	t.Setenv("SSL_CERT_FILE", "")
	t.Setenv("CODEX_CA_CERTIFICATE", "")
	if got := get(connect(), "https://example.com/", ""); !strings.HasPrefix(got, "-32603 http/request failed: error sending") {
		t.Errorf("without the certificate: %s", got)
	}
	t.Setenv("CODEX_CA_CERTIFICATE", file)
	ht := connect()
	if got := get(ht, "https://example.com/", ""); got != "example.com []" {
		t.Errorf("with the certificate: %s", got)
	}
	if got := get(ht, "https://example.com/", ""); got != "example.com []" {
		t.Errorf("another host keeps cookies: %s", got)
	}
	ht.requests.transport.TLSClientConfig.InsecureSkipVerify = true // the certificate names example.com only
	for _, step := range []struct{ url, headers, want string }{
		{"https://chatgpt.com/a/1", "", "chatgpt.com []"},
		{"https://chatgpt.com/a/2", "", "chatgpt.com [__cflb=west; cf_chl_x=1]"},
		{"https://chatgpt.com/b", "", "chatgpt.com []"},
		{"https://sub.chatgpt.com/a/1", "", "sub.chatgpt.com []"},
		{"https://chatgpt.com.example.com/a/1", "", "chatgpt.com.example.com []"},
		{"https://chatgpt.com/a/1", `{"name":"cookie","value":"own=1"}`, "chatgpt.com [own=1]"},
	} {
		if got := get(ht, step.url, step.headers); got != step.want {
			t.Errorf("%s: got %s, want %s", step.url, got, step.want)
		}
	}

	const hint = ". If you set CODEX_CA_CERTIFICATE or SSL_CERT_FILE, ensure it points to a PEM file containing one or more CERTIFICATE blocks, or unset it to use system roots."
	t.Setenv("CODEX_CA_CERTIFICATE", "")
	t.Setenv("SSL_CERT_FILE", "/nonexistent")
	if got := get(connect(), "https://example.com/", ""); got != "-32603 http/request failed: Failed to read CA certificate file /nonexistent selected by SSL_CERT_FILE: No such file or directory (os error 2)"+hint {
		t.Error(got)
	}
	t.Setenv("CODEX_CA_CERTIFICATE", "/dev/null")
	if got := get(connect(), "http://example.com/", ""); got != "-32603 http/request failed: Failed to load CA certificates from /dev/null selected by CODEX_CA_CERTIFICATE: no certificates found in PEM file"+hint {
		t.Error(got)
	}
}

// body collects a streamed body until its last delta.
func (t *httpTest) body(id string) (body string, err *string) {
	t.Helper()
	var b strings.Builder
	for seq := uint64(1); ; seq++ {
		d := <-t.deltas
		if d.RequestID != id || d.Seq != seq || len(d.Delta) > 1<<20 {
			t.Errorf("delta %s/%d of %d bytes, want %s/%d", d.RequestID, d.Seq, len(d.Delta), id, seq)
		}
		if d.Done {
			if len(d.Delta) > 0 {
				t.Error("the last delta is not empty")
			}
			return b.String(), d.Error
		}
		b.Write(d.Delta)
	}
}

func TestHTTPStream(t *testing.T) {
	ht := newHTTPTest(t)
	const drip = `{"method":"GET","url":"$U/drip","requestId":"q","streamResponse":true}`
	got, err := ht.call(drip)
	if err != nil || got.Status != 200 || got.Body == nil || len(got.Body) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = ht.call(drip)
	if text := answerText(t, nil, err); text != "-32602 http/request streamResponse requestId `q` is already active" {
		t.Error(text)
	}
	// A request that does not stream may use the same id.
	if _, err := ht.call(`{"method":"GET","url":"$U/echo","requestId":"q"}`); err != nil {
		t.Error(err)
	}
	close(ht.release)
	if body, err := ht.body("q"); body != "onetwo" || err != nil {
		t.Errorf("body %q, %v", body, err)
	}
	if _, err := ht.call(`{"method":"GET","url":"$U/big","requestId":"b","streamResponse":true}`); err != nil {
		t.Fatal(err)
	}
	if body, err := ht.body("b"); len(body) != maxResponseBody+1<<20 || err != nil {
		t.Errorf("body of %d bytes, %v", len(body), err)
	}
}

func TestHTTPStreamIDIsFreeAgain(t *testing.T) {
	ht := newHTTPTest(t)
	if _, err := ht.call(`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"q","streamResponse":true}`); err == nil {
		t.Error("no error")
	}
	if _, err := ht.call(`{"method":"GET","url":"$U/echo","requestId":"q","streamResponse":true}`); err != nil {
		t.Error(err)
	}
	ht.body("q")
}

func TestHTTPStreamErrors(t *testing.T) {
	ht := newHTTPTest(t)
	if _, err := ht.call(`{"method":"GET","url":"$U/cut","requestId":"q","streamResponse":true}`); err != nil {
		t.Fatal(err)
	}
	if body, err := ht.body("q"); body != "abc" || err == nil || *err != "error decoding response body: unexpected EOF" {
		t.Errorf("body %q, %v", body, err)
	}
	// The timeout covers the body. It is longer if the machine is too busy for the
	// beginning of the answer.
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		_, err := ht.call(fmt.Sprintf(`{"method":"GET","url":"$U/drip","requestId":"t","streamResponse":true,"timeoutMs":%d}`, timeout.Milliseconds()))
		body, bodyErr := "", new(string)
		if err == nil {
			body, bodyErr = ht.body("t")
		}
		if body != "" || timeout > time.Minute {
			if body != "one" || bodyErr == nil {
				t.Errorf("body %q, %v, %v", body, err, bodyErr)
			}
			break
		}
	}
}

func TestHTTPStreamOutlivesTheCallButNotTheConnection(t *testing.T) {
	ht := newHTTPTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	params := strings.ReplaceAll(`{"method":"GET","url":"$U/drip","requestId":"q","streamResponse":true}`, "$U", ht.url)
	if _, err := ht.requests.handle(ctx, json.RawMessage(params)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if d := <-ht.deltas; string(d.Delta) != "one" {
		t.Errorf("delta %q", d.Delta)
	}
	ht.requests.close()
	select {
	case d := <-ht.deltas:
		t.Errorf("delta %+v after close", d)
	default:
	}
	if _, err := ht.call(params); err == nil {
		t.Error("a request succeeded after close")
	}
}

func TestHTTPRequestEndsWithTheCall(t *testing.T) {
	ht := newHTTPTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, stream := range []bool{false, true} {
		params := fmt.Sprintf(`{"method":"GET","url":"%s/wait","requestId":"q","streamResponse":%t}`, ht.url, stream)
		if _, err := ht.requests.handle(ctx, json.RawMessage(params)); err == nil {
			t.Errorf("stream %t: no error", stream)
		}
	}
}

// FuzzHTTPParams checks that params give a request or a wire error. It sends no
// request.
func FuzzHTTPParams(f *testing.F) {
	f.Add([]byte(`{"method":"GET","url":"http://h/","requestId":"r","headers":[{"name":"a","value":"b","valueEnvVar":"X"}],"bodyBase64":"aGk="}`))
	f.Add([]byte(`{"method":"é","url":"http://[::1","requestId":1}`))
	f.Fuzz(func(t *testing.T, params []byte) {
		var p httpParams
		err := decode(params, &p, "method", "url", "requestId")
		var req *http.Request
		if err == nil {
			req, err = p.request()
		}
		var e *rpc.Error
		switch {
		case err != nil && !errors.As(err, &e):
			t.Fatalf("error %v is not a wire error", err)
		case err == nil:
			req.Body = nil
			_ = req.Write(bytes.NewBuffer(nil)) // must not panic
		}
	})
}

// A connection streams at most maxStreams responses at once.
func TestStreamsAreBounded(t *testing.T) {
	ht := newHTTPTest(t)
	stream := func(i int) error {
		_, err := ht.call(fmt.Sprintf(`{"method":"GET","url":"$U/drip","requestId":"%d","streamResponse":true}`, i))
		return err
	}
	for i := range maxStreams {
		if err := stream(i); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if err := stream(maxStreams); err == nil || !strings.Contains(err.Error(), "at most 256 responses may be streamed") {
		t.Errorf("one more: %v", err)
	}
	close(ht.release)
}
