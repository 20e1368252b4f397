package doctor

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/proxytest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// proxyCase is a site of a proxy, and what checks must find there.
type proxyCase struct {
	site  string // the lines that pass requests on
	finds []proxyFinding
}

// proxyFinding is what a check must say.
type proxyFinding struct {
	check   string
	verdict Verdict
	has     string // in the text
	next    string // in what to do next
}

// allGood is what checks find behind a proxy as docs/proxies.md has it.
var allGood = []proxyFinding{
	{"host", OK, "the server answers", ""},
	{"stream", OK, "streams are live", ""},
	{"websocket", OK, "1 MiB passes", ""},
	{"body", OK, "20 MiB", ""},
}

// TestProxies runs the checks behind nginx, Caddy and HAProxy, each started once: with
// the settings of docs/proxies.md, and with settings that hold streams back, keep
// WebSockets out, compress, or refuse large bodies. Each fault must be named.
func TestProxies(t *testing.T) {
	api := httpapi.New(httpapi.Options{Auth: authenticator{}, Gate: &access.Gate{Hosts: []string{"127.0.0.1"}}, Proxies: access.Proxies{netip.MustParsePrefix("127.0.0.0/8")}})
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		server.Close()
	})
	to := server.Listener.Addr().String()
	doc := settings(t)
	nginx, caddy := proxytest.All["nginx"], proxytest.All["caddy"]
	for name, cases := range map[string][]proxyCase{
		"nginx": {
			{doc["nginx"][0], allGood},
			{nginx.Default("127.0.0.1:7766"), []proxyFinding{
				{"stream", OK, "streams are live", ""},
				{"websocket", Warning, "WebSockets do not pass, through nginx", "proxy_set_header Upgrade"},
				{"body", Warning, "the status 413, through nginx", "client_max_body_size"},
			}},
			{"location / { proxy_pass http://127.0.0.1:7766; proxy_ignore_headers X-Accel-Buffering; }", []proxyFinding{
				{"stream", Problem, "streams are held back, through nginx", "proxy_buffering off"},
			}},
			{"location / { proxy_pass http://127.0.0.1:7766; gzip on; gzip_proxied any; gzip_types text/event-stream; gzip_min_length 0; }", []proxyFinding{
				{"stream", Warning, "compresses streams (gzip), through nginx", "gzip off"},
			}},
		},
		"caddy": {
			{doc["caddy"][0], allGood},
			{"reverse_proxy 127.0.0.1:7766 {\nbuffer_responses\n}", []proxyFinding{
				{"stream", Problem, "streams are held back, through Caddy", "flush_interval -1"},
			}},
			{"encode gzip\n" + caddy.Default("127.0.0.1:7766"), []proxyFinding{
				{"stream", OK, "streams are live", ""}, // it compresses no streams
			}},
			{"reverse_proxy 127.0.0.1:7766 {\nheader_up -Upgrade\nheader_up -Connection\n}\nrequest_body {\nmax_size 1MB\n}", []proxyFinding{
				{"websocket", Warning, "WebSockets do not pass, through Caddy", "header_up"},
				{"body", Warning, "does not arrive", "raise the limit"},
			}},
		},
		"haproxy": {
			{doc["haproxy"][0], allGood},
			{"backend spool\nmode http\nhttp-request set-header X-Forwarded-Proto http\nhttp-response wait-for-body time 60s\nhttp-request del-header Upgrade\nserver s 127.0.0.1:7766", []proxyFinding{
				{"stream", Problem, "streams are held back, through a proxy that does not name itself", "turn buffering"},
				{"websocket", Warning, "WebSockets do not pass, through a proxy that does not name itself", "Upgrade"},
			}},
			{"backend spool\nmode http\nhttp-request deny if { hdr(Upgrade) -i websocket }\ncompression algo gzip\ncompression type text/event-stream\nserver s 127.0.0.1:7766", []proxyFinding{
				{"stream", OK, "streams are live", ""}, // it heeds no-transform
				{"websocket", Warning, "WebSockets do not pass, through HAProxy", "denies requests"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sites []string
			for _, c := range cases {
				sites = append(sites, strings.ReplaceAll(c.site, "127.0.0.1:7766", to))
			}
			running, err := proxytest.All[name].Start(doc["nginx"][1], sites)
			if errors.Is(err, exec.ErrNotFound) {
				skiptest.Missing(t, "%v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(running.Close)
			for i, c := range cases {
				for _, want := range c.finds {
					t.Run(fmt.Sprintf("%d/%s", i, want.check), func(t *testing.T) {
						t.Parallel()
						checkProxy(t, running.URLs[i], want)
					})
				}
			}
		})
	}
}

// checkProxy makes one check, and compares what it finds.
func checkProxy(t *testing.T, url string, want proxyFinding) {
	checks, err := URLChecks(URLOptions{URL: url, Token: "good"})
	if err != nil {
		t.Fatal(err)
	}
	if checks, err = Select(checks, []string{want.check}); err != nil {
		t.Fatal(err)
	}
	checks[0].Deadline = 3 * time.Minute
	var f Finding
	find := func() bool {
		for f = range Run(t.Context(), checks, nil) {
		}
		return f.Verdict == want.verdict && strings.Contains(f.Text, want.has) && strings.Contains(f.Next, want.next)
	}
	// A machine with other work holds frames back as well, now and then; a proxy
	// that does, always does.
	if !find() && (want.verdict != OK || want.check != "stream" || !polltest.Holds(find)) {
		t.Errorf("%s: %+v, want %+v", want.check, f, want)
	}
}

// settings are the fenced blocks of docs/proxies.md by their language.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	for i, part := range strings.Split(string(page), "```") {
		if language, text, _ := strings.Cut(part, "\n"); i%2 == 1 && language != "" {
			blocks[language] = append(blocks[language], text)
		}
	}
	if len(blocks["nginx"]) != 2 || len(blocks["caddy"]) != 1 || len(blocks["haproxy"]) != 1 {
		t.Fatalf("docs/proxies.md has the blocks %q", blocks)
	}
	return blocks
}
