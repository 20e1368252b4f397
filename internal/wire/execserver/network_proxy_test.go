package execserver_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// proxyOf returns a networkProxy object with changes to its proxy, and to itself.
func proxyOf(proxy, launch map[string]any) string {
	p := map[string]any{
		"enabled": true, "enableSocks5": false, "enableSocks5Udp": false, "allowUpstreamProxy": false, "dangerouslyAllowAllUnixSockets": false,
		"mode": "full", "domains": nil, "unixSockets": nil, "allowLocalBinding": false,
	}
	maps.Copy(p, proxy)
	l := map[string]any{"proxy": p, "environmentId": "env", "executionId": "exec"}
	maps.Copy(l, launch)
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // only plain values are used
	}
	return string(b)
}

// proxied is a process with a network proxy.
type proxied struct {
	sandbox string // of [processSandboxes]; empty for none
	network string // restricted or enabled
	enforce bool
	proxy   string
	reply   string // the answer to network/policyRequest: its result or error member; empty for none
	script  string

	decisions int // how many the client is told at least, maybe after the end of the process
}

// proxiedEnd is what a client sees of it.
type proxiedEnd struct {
	Error     any
	Output    string
	ExitCode  int
	Requests  []any // params of network/policyRequest
	Decisions []any // params of network/policyDecision
}

// runProxied runs a process and answers its proxy.
func (c *rawClient) runProxied(t *testing.T, id int, dir string, p proxied) proxiedEnd {
	t.Helper()
	c.startProxied(t, id, dir, p)
	return c.endProxied(t, p)
}

// startProxied asks for the start of a process.
func (c *rawClient) startProxied(t *testing.T, id int, dir string, p proxied) {
	t.Helper()
	argv, err := json.Marshal([]string{"/bin/sh", "-c", p.script})
	if err != nil {
		t.Fatal(err)
	}
	sandbox := strings.ReplaceAll(processObject(p.sandbox, p.network), "$D", fileuri.Format(dir))
	c.send(t, fmt.Sprintf(`{"id":%d,"method":"process/start","params":{"processId":"p%d","argv":%s,"cwd":"%s","env":{"PATH":"/usr/bin:/bin","LC_ALL":"C"},"tty":false,`+
		`"sandbox":%s,"enforceManagedNetwork":%t,"networkProxy":%s}}`, id, id, argv, fileuri.Format(filepath.Join(dir, "ws")), sandbox, p.enforce, p.proxy))
}

// endProxied waits for the end of a process and answers its proxy.
func (c *rawClient) endProxied(t *testing.T, p proxied) (end proxiedEnd) {
	t.Helper()
	var out strings.Builder
	for closed := false; !closed || len(end.Decisions) < p.decisions; {
		b, _ := c.message(t)
		var m struct {
			ID     *int
			Method string
			Params json.RawMessage
			Error  any
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		var params struct {
			Chunk    string
			ExitCode int
		}
		if m.Params != nil {
			if err := json.Unmarshal(m.Params, &params); err != nil {
				t.Fatal(err)
			}
		}
		switch m.Method {
		case "":
			if m.Error != nil {
				return proxiedEnd{Error: m.Error}
			}
		case "process/output":
			b, err := base64.StdEncoding.DecodeString(params.Chunk)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(b)
		case "process/exited":
			end.ExitCode = params.ExitCode
		case "network/policyRequest":
			end.Requests = append(end.Requests, decoded(t, m.Params))
			if p.reply != "" {
				c.send(t, fmt.Sprintf(`{"id":%d,%s}`, *m.ID, p.reply))
			}
		case "network/policyDecision":
			d := decoded(t, m.Params)
			for name, form := range map[string]string{"timestamp": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, "client": `^127\.0\.0\.1:\d+$`} {
				if text := fmt.Sprint(d[name]); !regexp.MustCompile(form).MatchString(text) {
					t.Errorf("the %s of a decision is %s", name, text)
				}
				delete(d, name)
			}
			end.Decisions = append(end.Decisions, d)
		case "process/closed":
			closed = true
		}
	}
	end.Output = regexp.MustCompile(`(http|socks5h)://127\.0\.0\.1:\d+`).ReplaceAllString(out.String(), "$1://PROXY")
	return end
}

func decoded(t *testing.T, raw json.RawMessage) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// proxyBench is both servers, a web server, and for each server a directory with the
// directory ws: while one makes a sandbox for it, the other must not remove what it put
// in the place of protected paths.
type proxyBench struct {
	ours, codex *rawClient
	port        string // of the web server, on 127.0.0.1
	dir         string // of ours
	codexDir    string
}

func newProxyBench(t *testing.T, withCodex bool) *proxyBench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ours, codex := filepath.Join(dir, "ours"), filepath.Join(dir, "codex")
	for _, d := range []string{ours, codex} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		newSandboxTree(t, d)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "web %s %s %v\n", r.Method, r.URL.Path, r.Header)
	}))
	t.Cleanup(web.Close)
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := &proxyBench{port: port, dir: ours, codexDir: codex}
	url, _ := newServer(t, execserver.Options{})
	b.ours = dialRaw(t, url)
	b.ours.initialize(t)
	if withCodex {
		s, err := codextest.StartServer(codextest.Binary(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		b.codex = dialRaw(t, s.URL())
		b.codex.initialize(t)
	}
	return b
}

// fetch is a function for scripts that tells how the proxy answers.
const fetch = `f() { curl -s --noproxy "" -w "%{http_code} %{content_type} %header{x-proxy-error}\n" "$@"; echo "exit $?"; }; `

// TestNetworkProxySameAsCodex runs processes with network proxies on our server and on
// the real codex exec-server, and compares what they are told, what the client is
// asked, and what it is told.
func TestNetworkProxySameAsCodex(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	b := newProxyBench(t, true)
	web, local := "http://127.0.0.1:"+b.port, map[string]any{"domains": map[string]string{"127.0.0.1": "allow"}}
	rules := map[string]any{"domains": map[string]string{"*": "allow", "**.a.example": "deny", "*.b.example": "deny", "C.example.": "deny", "d.example": "none"}}
	asks := map[string]any{"policyDecisionTimeoutMs": 60_000}
	ask := fetch + "f http://asked.example:81/x; f -p http://asked.example:82/; f " + web
	const variables = `env | grep -v "^PWD=" | grep -i "proxy\|codex_network" | sort`
	for i, p := range []proxied{
		{proxy: proxyOf(nil, nil), script: variables},
		{proxy: proxyOf(map[string]any{"enableSocks5": true, "enableSocks5Udp": true, "allowUpstreamProxy": true, "allowLocalBinding": true}, nil), script: variables},
		{sandbox: "workspace", network: "restricted", enforce: true, proxy: proxyOf(local, nil), script: variables},
		// Allowed and refused hosts, and a direct connection.
		{proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a; f -p " + web + "/b; f http://no.example/; f -p http://no.example/; f -x '' " + web},
		{sandbox: "workspace", network: "restricted", enforce: true, proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a; f -p " + web + "/b; f http://no.example/; f -x '' " + web},
		{sandbox: "readonly", network: "enabled", enforce: true, proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a; f http://no.example/; f -x '' " + web},
		{sandbox: "whole", network: "restricted", enforce: true, proxy: proxyOf(local, nil), script: "echo x >../wrote; " + fetch + "f " + web + "/a; f http://no.example/; f -x '' " + web},
		{sandbox: "workspace", network: "restricted", proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a; f -x '' " + web},
		{sandbox: "workspace", network: "enabled", proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a; f -x '' " + web},
		{enforce: true, proxy: proxyOf(local, nil), script: fetch + "f " + web + "/a"},
		// SOCKS5.
		{proxy: proxyOf(map[string]any{"enableSocks5": true, "domains": local["domains"]}, nil), script: fetch + "f -x $ALL_PROXY " + web + "; f -x $ALL_PROXY http://no.example/"},
		{sandbox: "workspace", network: "restricted", enforce: true, proxy: proxyOf(map[string]any{"enableSocks5": true, "domains": local["domains"]}, nil),
			script: fetch + "f -x $ALL_PROXY " + web + "; f -x $ALL_PROXY http://no.example/"},
		{proxy: proxyOf(local, nil), script: fetch + "f -x socks5h://${HTTP_PROXY#http://} " + web},
		// Rules.
		{proxy: proxyOf(rules, nil), script: fetch + "for h in a.example x.y.a.example A.EXAMPLE. x.b.example c.example localhost 10.9.8.7 203.0.113.1 127.1.2.3; do f http://$h/; done"},
		{proxy: proxyOf(map[string]any{"domains": map[string]string{"*.b.example": "deny", "c.example": "deny"}}, nil), script: fetch + "f http://b.example; f http://x.c.example"},
		{proxy: proxyOf(map[string]any{"domains": map[string]string{"*": "allow"}, "allowLocalBinding": true}, nil), script: fetch + "f " + web + "; f http://localhost:" + b.port},
		{proxy: proxyOf(map[string]any{"domains": map[string]string{"localhost": "allow"}}, nil), script: fetch + "f " + web + "; f http://localhost:" + b.port},
		{proxy: proxyOf(map[string]any{"allowLocalBinding": true}, nil), script: fetch + "f " + web},
		// Asks.
		{proxy: proxyOf(map[string]any{"allowLocalBinding": true}, asks), reply: `"result":{"decision":{"type":"allow"}}`, script: fetch + "f " + web + "/a; f " + web + "/b; f -p " + web + "/c"},
		{sandbox: "workspace", network: "restricted", enforce: true, proxy: proxyOf(map[string]any{"allowLocalBinding": true}, asks), reply: `"result":{"decision":{"type":"allow"}}`,
			script: fetch + "f " + web + "/a"},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"allow"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"deny","reason":"because"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"deny"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"ask","reason":"asking"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"ask"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"other"}}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"result":{}`, script: ask},
		{proxy: proxyOf(nil, asks), reply: `"error":{"code":-32601,"message":"no"}`, script: ask},
		{sandbox: "workspace", network: "restricted", enforce: true, proxy: proxyOf(nil, asks), reply: `"result":{"decision":{"type":"deny","reason":"denied"}}`, script: ask},
	} {
		b.codex.startProxied(t, 100+i, b.codexDir, p)
		got := b.ours.runProxied(t, 100+i, b.dir, p)
		p.decisions = len(got.Decisions)
		want := b.codex.endProxied(t, p)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-codex +spool):\n%s", p, diff)
		}
		if got.Output == "" {
			t.Errorf("%+v: got %+v", p, got)
		}
	}
}

// TestNetworkProxyErrorsSameAsCodex compares the answers to starts whose network proxy
// is refused.
func TestNetworkProxyErrorsSameAsCodex(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	b := newProxyBench(t, true)
	domain := func(name, value string) string {
		return proxyOf(map[string]any{"domains": map[string]string{name: value}}, nil)
	}
	for i, proxy := range []string{
		`[]`, `{}`, `1`, `{"proxy":null}`, `{"proxy":{}}`, `{"proxy":{"enabled":true}}`, `{"proxy":{"enabled":1}}`,
		proxyOf(map[string]any{"enabled": false}, nil), proxyOf(map[string]any{"mode": "other"}, nil), proxyOf(map[string]any{"enableSocks5": "x"}, nil),
		proxyOf(map[string]any{"domains": []int{}}, nil), domain("x.example", "maybe"), domain("a b", "allow"), domain("http://x.example", "allow"),
		domain("10.0.0.0/8", "allow"), domain("", "allow"), domain("*", "deny"),
		proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 0}), proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": -1}),
		proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 1.5}), proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": "x"}),
		proxyOf(nil, map[string]any{"executionId": 3}),
	} {
		p := proxied{proxy: proxy, script: "echo ran"}
		want, got := b.codex.runProxied(t, 100+i, b.codexDir, p), b.ours.runProxied(t, 100+i, b.dir, p)
		if diff := cmp.Diff(want, got); diff != "" || got.Error == nil {
			t.Errorf("%s (-codex +spool):\n%s", proxy, diff)
		}
	}
}

// TestNetworkProxyDecisionTimesOut compares what happens without an answer.
func TestNetworkProxyDecisionTimesOut(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	t.Parallel() // it waits for the margin of five seconds
	b := newProxyBench(t, true)
	p := proxied{proxy: proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 1}), script: fetch + "f http://asked.example/", decisions: 1}
	b.codex.startProxied(t, 100, b.codexDir, p)
	got := b.ours.runProxied(t, 100, b.dir, p)
	if diff := cmp.Diff(b.codex.endProxied(t, p), got); diff != "" || !strings.Contains(got.Output, "not_allowed") {
		t.Errorf("(-codex +spool):\n%s", diff)
	}
}

// TestNetworkProxyRefuses checks that a start is refused which asks for more than this
// server does.
func TestNetworkProxyRefuses(t *testing.T) {
	b := newProxyBench(t, false)
	var many = make(map[string]string)
	for i := range 1001 {
		many[fmt.Sprintf("h%d.example", i)] = "allow"
	}
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	for i, tt := range []struct{ proxy, want string }{
		{proxyOf(map[string]any{"mode": "limited"}, nil), "the mode limited"},
		{proxyOf(map[string]any{"dangerouslyAllowAllUnixSockets": true}, nil), "unix sockets"},
		{proxyOf(map[string]any{"unixSockets": map[string]string{"/x": "allow"}}, nil), "unix sockets"},
		{proxyOf(map[string]any{"allowUpstreamProxy": true}, nil), "its environment has HTTPS_PROXY"},
		{proxyOf(map[string]any{"domains": map[string]string{"x.*.example": "allow"}}, nil), "unsupported domain pattern"},
		{proxyOf(map[string]any{"domains": map[string]string{"x.example:80": "allow"}}, nil), "unsupported domain pattern"},
		{proxyOf(map[string]any{"domains": many}, nil), "at most 1000"},
		{proxyOf(map[string]any{"mitm": true}, nil), "mitm"},
		{proxyOf(nil, map[string]any{"reviewDomains": []string{"x"}}), "reviewDomains"},
		{"null", "without a networkProxy"},
	} {
		got := b.ours.runProxied(t, 100+i, b.dir, proxied{enforce: tt.proxy == "null", proxy: tt.proxy, script: "echo ran"})
		if text := fmt.Sprint(got.Error); !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %+v, want %s", tt.proxy, got, tt.want)
		}
	}
	b.ours.send(t, `{"id":7,"method":"process/start","params":{"processId":"","argv":["true"],"cwd":"file:///","env":{},"tty":false,"networkProxy":`+
		proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 1})+`}}`)
	if r, _, _ := b.ours.answer(t, 7); !strings.Contains(fmt.Sprint(r.Error), "1 to 256 bytes") {
		t.Errorf("without an id: %v", r.Error)
	}
}

// TestNetworkProxyEnds checks that the proxy of a process ends with it, with a start
// that fails, and with the session.
func TestNetworkProxyEnds(t *testing.T) {
	b := newProxyBench(t, false)
	gone := func(port string) {
		t.Helper()
		polltest.Until(t, "the proxy ends", func() bool {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	got := b.ours.runProxied(t, 100, b.dir, proxied{proxy: proxyOf(nil, nil), script: "echo ${HTTP_PROXY##*:}"})
	gone(strings.TrimSpace(got.Output))

	b.ours.send(t, `{"id":9,"method":"process/start","params":{"processId":"x","argv":["/nowhere"],"cwd":"file:///","env":{},"tty":false,"networkProxy":`+proxyOf(nil, nil)+`}}`)
	if r, _, _ := b.ours.answer(t, 9); r.Error == nil {
		t.Errorf("a program that is not there: %s", r.Result)
	}

	// A process that waits for a decision when the server ends, after the test: the
	// server must end, and leave no goroutine.
	b.ours.send(t, `{"id":10,"method":"process/start","params":{"processId":"y","argv":["/bin/sh","-c","curl -s http://asked.example"],"cwd":"file:///","env":{"PATH":"/usr/bin:/bin"},"tty":false,"networkProxy":`+
		proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 3_600_000})+`}}`)
	for {
		if m, _ := b.ours.message(t); strings.Contains(string(m), "network/policyRequest") {
			break
		}
	}
}

// TestNetworkProxyUnanswered checks that the asks that a client does not answer are
// bounded, and that those beyond are refused at once.
func TestNetworkProxyUnanswered(t *testing.T) {
	b := newProxyBench(t, false)
	b.ours.send(t, `{"id":10,"method":"process/start","params":{"processId":"x","argv":["/bin/sh","-c","echo ${HTTP_PROXY##*/}; exec sleep 1000"],"cwd":"file:///","env":{"PATH":"/usr/bin:/bin"},"tty":false,"networkProxy":`+
		proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 3_600_000})+`}}`)
	var addr string
	for addr == "" {
		var m struct{ Params struct{ Chunk string } }
		msg, _ := b.ours.message(t)
		if err := json.Unmarshal(msg, &m); err != nil {
			t.Fatal(err)
		}
		line, err := base64.StdEncoding.DecodeString(m.Params.Chunk)
		if err != nil {
			t.Fatal(err)
		}
		addr = strings.TrimSpace(string(line))
	}
	request := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprint(c, "GET http://asked.example/ HTTP/1.1\r\nHost: asked.example\r\n\r\n")
		return c
	}
	for range execserver.MaxUnanswered {
		request()
	}
	for asked := 0; asked < execserver.MaxUnanswered; {
		if m, _ := b.ours.message(t); strings.Contains(string(m), "network/policyRequest") {
			asked++
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(request()), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("one more ask: %s", resp.Status)
	}
}

// TestNetworkProxyWithoutClient checks that a host that the client would be asked about
// is refused while the client is away.
func TestNetworkProxyWithoutClient(t *testing.T) {
	b := newProxyBench(t, false)
	ws := filepath.Join(b.dir, "ws")
	b.ours.startProxied(t, 100, b.dir, proxied{proxy: proxyOf(nil, map[string]any{"policyDecisionTimeoutMs": 3_600_000}),
		script: `until [ -e go ]; do sleep 0.05; done; curl -s -o /dev/null -w "%{http_code}" http://asked.example >got; mv got out`})
	b.ours.answer(t, 100)
	b.ours.Close()
	writeTree(t, ws, map[string]string{"go": ""})
	var got []byte
	polltest.Until(t, "the process tells", func() (ok bool) {
		var err error
		got, err = os.ReadFile(filepath.Join(ws, "out"))
		return err == nil
	})
	if string(got) != "403" {
		t.Errorf("got %s", got)
	}
}
