package doctor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"
)

// Bounds of the checks of a server.
const (
	urlFrames     = 5
	urlEvery      = 200 * time.Millisecond
	urlBody       = 20 << 20 // bytes of a body that must arrive
	urlSilence    = 20 * time.Second
	certSoon      = 14 * 24 * time.Hour // before which a certificate should be replaced
	skewTolerated = 5 * time.Second
	urlAnswer     = 1 << 20 // bytes of an answer that is looked at
)

// urlSilences are the silences of a deep check.
var urlSilences = []time.Duration{60 * time.Second, 120 * time.Second, 310 * time.Second}

// URLOptions say which server is checked, from where this program runs.
type URLOptions struct {
	URL   string // http or https
	Token string // of a subject; may be empty
	TLS   *tls.Config
	Deep  bool // also how long a silent stream lasts: about six minutes
	// Silence is how long the server waits before it answers a request; zero
	// means 20 seconds.
	Silence time.Duration
}

// URLChecks returns the checks of a server and of what is between it and here.
func URLChecks(o URLOptions) ([]Check, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%.200q is no URL of a server: use http://HOST or https://HOST", o.URL)
	}
	if o.Silence == 0 {
		o.Silence = urlSilence
	}
	v := &visitor{o: o, base: u, client: &http.Client{Transport: &http.Transport{TLSClientConfig: o.TLS, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}}}
	checks := []Check{
		{Name: "name", Try: one(v.name)},
		{Name: "tls", Try: one(v.tls)},
		{Name: "host", Try: one(v.host)},
		{Name: "token", Try: one(v.token)},
		{Name: "stream", Try: one(v.stream)},
		{Name: "websocket", Try: one(v.socket)},
		{Name: "body", Deadline: 2 * time.Minute, Try: one(v.body)},
		{Name: "clock", Try: one(v.clock)},
		{Name: "wait", Deadline: o.Silence + DefaultDeadline, Try: one(v.wait)},
	}
	if o.Deep {
		for _, d := range urlSilences {
			checks = append(checks, Check{Name: "silence-" + d.String(), Deadline: d + DefaultDeadline, Try: one(func(ctx context.Context) Finding { return v.silence(ctx, d) })})
		}
	}
	for i := range checks {
		checks[i].Group = "url"
	}
	return checks, nil
}

// visitor asks a server.
type visitor struct {
	o      URLOptions
	base   *url.URL
	client *http.Client
}

// ask sends a request with the token.
func (v *visitor) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	path, query, _ := strings.Cut(path, "?")
	u := v.base.JoinPath(path)
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if v.o.Token != "" {
		r.Header.Set("Authorization", "Bearer "+v.o.Token)
	}
	return v.client.Do(r)
}

// refusal is a problem that the server, or something before it, answers with.
type refusal struct {
	Status int
	Code   string `json:"code"`
	Detail string `json:"detail"`
	proxy  string
}

// refused reads a problem. An answer that is none comes from something else.
func refused(resp *http.Response) *refusal {
	p := &refusal{Status: resp.StatusCode, proxy: proxyOf(resp.Header)}
	b, err := io.ReadAll(io.LimitReader(resp.Body, urlAnswer))
	if err != nil || json.Unmarshal(b, p) != nil {
		p.Code = ""
	}
	if p.proxy == "" && bytes.Contains(b, []byte(haproxyForbids)) {
		p.proxy = "HAProxy"
	}
	return p
}

// haproxyForbids is what HAProxy answers with where a rule denies a request. It has no
// header that names it.
const haproxyForbids = "Request forbidden by administrative rules."

// proxyOf names what is before the server, from the headers of an answer.
func proxyOf(h http.Header) string {
	server := strings.ToLower(h.Get("Server") + " " + strings.Join(h.Values("Via"), " "))
	switch {
	case h.Get("Cf-Ray") != "" || strings.Contains(server, "cloudflare"):
		return "Cloudflare"
	case strings.Contains(server, "nginx"), strings.Contains(server, "openresty"):
		return "nginx"
	case strings.Contains(server, "caddy"):
		return "Caddy"
	case strings.Contains(server, "haproxy"):
		return "HAProxy"
	case strings.Contains(server, "apache"):
		return "Apache"
	case strings.Contains(server, "awselb") || h.Get("X-Amzn-Trace-Id") != "":
		return "the load balancer of AWS"
	case strings.TrimSpace(server) != "":
		return strings.TrimSpace(server)
	}
	return ""
}

// bufferingOf is the line of configuration that has a proxy pass streams on.
func bufferingOf(proxy string) string {
	switch proxy {
	case "nginx":
		return "in the location of nginx: proxy_buffering off; proxy_cache off; gzip off; and no proxy_ignore_headers X-Accel-Buffering"
	case "Caddy":
		return "in the reverse_proxy of Caddy: flush_interval -1"
	case "HAProxy":
		return "in HAProxy: no http-response wait-for-body"
	case "Apache":
		return "in Apache: ProxyPass … flushpackets=on, and SetEnv no-gzip 1"
	case "Cloudflare":
		return "use a named tunnel or a rule that turns caching and compression off: quick tunnels hold streams back"
	}
	return "turn buffering and compression of text/event-stream off in the proxy; until then clients poll with wait_ms, which works"
}

func (v *visitor) name(ctx context.Context) Finding {
	host := v.base.Hostname()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return problem("check the name, and the DNS of this machine", "the name of the server is not found: %s", err)
	}
	return ok("%s is %s", host, strings.Join(addrs, ", "))
}

func (v *visitor) tls(ctx context.Context) Finding {
	if v.base.Scheme != "https" {
		if ip := net.ParseIP(v.base.Hostname()); ip != nil && ip.IsLoopback() || v.base.Hostname() == "localhost" {
			return ok("the connection is not encrypted, and stays on this machine")
		}
		return warning("use https://, with --tls-cert or behind a proxy that ends TLS", "the connection is not encrypted: the network can read tokens and output")
	}
	resp, err := v.ask(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		return problem("renew the certificate, or name its authority with --tls-ca, or its fingerprint with --tls-pin", "the server cannot be reached with TLS: %s", err)
	}
	defer resp.Body.Close()
	cert := resp.TLS.PeerCertificates[0]
	if left := time.Until(cert.NotAfter); left < certSoon {
		return warning("renew the certificate: the server notices new files by itself", "the certificate expires in %s", left.Round(time.Hour))
	}
	return ok("%s, with a certificate that is valid until %s", tls.VersionName(resp.TLS.Version), cert.NotAfter.UTC().Format(time.DateOnly))
}

func (v *visitor) host(ctx context.Context) Finding {
	resp, err := v.ask(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		return problem("start it with: spool serve", "no server answers: %s", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p := refused(resp)
		switch {
		case p.Code == "bad_host":
			return problem("start the server with --host "+v.base.Hostname(), "the server does not know itself as %s", v.base.Host)
		case p.Code != "":
			return problem("see docs/access.md", "the server refuses requests: %s", p.Detail)
		}
		return problem("point the proxy at the server, and let it pass all paths", "something else answers with %s%s", resp.Status, by(p.proxy))
	}
	return ok("the server answers with %s%s", resp.Proto, by(proxyOf(resp.Header)))
}

func by(proxy string) string {
	if proxy == "" {
		return ""
	}
	return ", through " + proxy
}

func (v *visitor) token(ctx context.Context) Finding {
	resp, err := v.ask(ctx, http.MethodGet, "/v1/session", nil)
	if err != nil {
		return problem("see the check host", "no answer: %s", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p := refused(resp)
		if p.Code == "" {
			return problem("let the proxy pass the header Authorization and the paths below /v1/", "something else answers with %s%s", resp.Status, by(p.proxy))
		}
		return problem("name a file with a token with --token-file: the other checks need one", "the server does not know who asks: %s", p.Detail)
	}
	var who struct {
		Subject string `json:"subject"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, urlAnswer)).Decode(&who); err != nil {
		return problem("let the proxy pass the paths below /v1/", "the answer is no session: %s", err)
	}
	return ok("the server knows who asks: %s", who.Subject)
}

// frame is a frame of the stream for doctors, and when it came.
type frame struct {
	N    int       `json:"n"`
	Sent time.Time `json:"sent"`
	came time.Time
}

// stream finds out whether frames arrive when they are sent.
func (v *visitor) stream(ctx context.Context) Finding {
	frames, resp, err := v.frames(ctx, urlFrames, urlEvery)
	if err != nil {
		return problem("clients poll with wait_ms where streams do not work", "the stream fails: %s", err)
	}
	proxy := v.proxy(ctx, resp.Header)
	coding := resp.Header.Get("Content-Encoding")
	if resp.Uncompressed { // the client takes it off, with the header
		coding = "gzip"
	}
	if coding != "" {
		return warning(bufferingOf(proxy), "something compresses streams (%s)%s, which holds them back", coding, by(proxy))
	}
	first, last := frames[0], frames[len(frames)-1]
	least := first.came.Sub(first.Sent)
	for _, f := range frames {
		least = min(least, f.came.Sub(f.Sent))
	}
	late := 0
	for _, f := range frames {
		if f.came.Sub(f.Sent)-least > urlEvery*3/4 {
			late++
		}
	}
	took := last.Sent.Sub(first.Sent)
	switch held := first.came.Sub(first.Sent) - least; {
	case held > took*6/10:
		return problem(bufferingOf(proxy), "streams are held back%s: the first of %d frames came %s after it was sent, with the last", by(proxy), len(frames), held.Round(time.Millisecond))
	case late > 0:
		return warning(bufferingOf(proxy), "streams come in batches%s: %d of %d frames came late", by(proxy), late, len(frames))
	}
	return ok("streams are live: %d frames in %s, each when it was sent", len(frames), last.came.Sub(first.came).Round(time.Millisecond))
}

var errStreamShort = errors.New("it ended early")

// frames reads a stream of frames at equal distances.
func (v *visitor) frames(ctx context.Context, n int, every time.Duration) ([]frame, *http.Response, error) {
	resp, err := v.ask(ctx, http.MethodGet, fmt.Sprintf("/v1/doctor/stream?frames=%d&every_ms=%d", n, every.Milliseconds()), nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		p := refused(resp)
		return nil, nil, fmt.Errorf("%s %s%s", resp.Status, p.Detail, by(p.proxy))
	}
	var frames []frame
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		f := frame{came: time.Now()}
		if err := json.Unmarshal([]byte(data), &f); err != nil {
			return nil, nil, fmt.Errorf("a frame is %.100q", data)
		}
		frames = append(frames, f)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("after %d of %d frames: %w", len(frames), n, err)
	}
	if len(frames) != n {
		return nil, nil, fmt.Errorf("after %d of %d frames: %w", len(frames), n, errStreamShort)
	}
	return frames, resp, nil
}

// echo is what arrived of a request.
type echo struct {
	Bytes int64     `json:"bytes"`
	Time  time.Time `json:"time"`
	Via   []string  `json:"via"` // headers that proxies add
}

// proxy names what is before the server, from the headers of an answer, or from what
// it adds to requests.
func (v *visitor) proxy(ctx context.Context, h http.Header) string {
	if name := proxyOf(h); name != "" {
		return name
	}
	got, p, err := v.echo(ctx, "/v1/doctor/echo", nil)
	if err == nil && p == nil && len(got.Via) > 0 {
		return unnamedProxy
	}
	return ""
}

const unnamedProxy = "a proxy that does not name itself"

// echo sends a body, and returns what arrived.
func (v *visitor) echo(ctx context.Context, path string, body []byte) (got echo, p *refusal, err error) {
	resp, err := v.ask(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return echo{}, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return echo{}, refused(resp), nil
	}
	return got, nil, json.NewDecoder(io.LimitReader(resp.Body, urlAnswer)).Decode(&got)
}

func (v *visitor) body(ctx context.Context) Finding {
	got, p, err := v.echo(ctx, "/v1/doctor/echo", make([]byte, urlBody))
	const next = "raise the limit of the proxy, such as client_max_body_size 0 in nginx"
	switch {
	case err != nil:
		return warning(next, "a body of 20 MiB does not arrive: %s", err)
	case p != nil && p.Code == "":
		return warning(next, "a body of 20 MiB does not arrive: something before the server answers with the status %d%s", p.Status, by(p.proxy))
	case p != nil:
		return warning("see the check token", "the server refuses: %s", p.Detail)
	case got.Bytes != urlBody:
		return warning(next, "of a body of %d bytes %d arrived", urlBody, got.Bytes)
	}
	return ok("a body of 20 MiB arrives")
}

func (v *visitor) clock(ctx context.Context) Finding {
	var sent time.Time
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent = time.Now() }})
	got, p, err := v.echo(ctx, "/v1/doctor/echo", nil)
	switch {
	case err != nil:
		return warning("see the check host", "no answer: %s", err)
	case p != nil:
		return warning("see the check token", "the server refuses: %s", p.Detail)
	}
	took := time.Since(sent)
	skew := got.Time.Sub(sent.Add(took / 2))
	if skew.Abs() > skewTolerated+took {
		return warning("set the clocks with NTP: tokens and codes expire at the wrong time", "the clocks differ by %s", skew.Round(time.Second))
	}
	return ok("the clocks agree, and an answer takes %s", took.Round(time.Millisecond))
}

func (v *visitor) wait(ctx context.Context) Finding {
	const next = "raise the time that the proxy waits for an answer, such as proxy_read_timeout 120s in nginx"
	_, p, err := v.echo(ctx, fmt.Sprintf("/v1/doctor/echo?wait_ms=%d", v.o.Silence.Milliseconds()), nil)
	switch {
	case err != nil:
		return warning(next, "a request that waits for %s is cut: %s", v.o.Silence, err)
	case p != nil && p.Code == "":
		return warning(next, "a request that waits for %s is answered with the status %d%s", v.o.Silence, p.Status, by(p.proxy))
	case p != nil:
		return warning("see the check token", "the server refuses: %s", p.Detail)
	}
	return ok("a request may wait for %s", v.o.Silence)
}

func (v *visitor) silence(ctx context.Context, d time.Duration) Finding {
	if _, _, err := v.frames(ctx, 2, d); err != nil {
		return warning("the server breaks silence after 15 s (--heartbeat), so that streams of runs last; raise the idle time of the proxy", "a stream that is silent for %s is cut: %s", d, err)
	}
	return ok("a stream may be silent for %s", d)
}
