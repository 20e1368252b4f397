package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/tether"
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
	for name, proxy := range map[string]struct {
		cases  []proxyCase
		config func(dir string, sites []string) string
		args   func(config string) []string
	}{
		"nginx": {
			config: nginxConfig(doc["nginx"][1]),
			args: func(config string) []string {
				return []string{"-p", filepath.Dir(config), "-e", "stderr", "-c", config}
			},
			cases: []proxyCase{
				{doc["nginx"][0], allGood},
				{"location / { proxy_pass http://127.0.0.1:7766; }", []proxyFinding{
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
		},
		"caddy": {
			config: caddyConfig,
			args:   func(config string) []string { return []string{"run", "--adapter", "caddyfile", "--config", config} },
			cases: []proxyCase{
				{doc["caddy"][0], allGood},
				{"reverse_proxy 127.0.0.1:7766 {\nbuffer_responses\n}", []proxyFinding{
					{"stream", Problem, "streams are held back, through Caddy", "flush_interval -1"},
				}},
				{"encode gzip\nreverse_proxy 127.0.0.1:7766", []proxyFinding{
					{"stream", OK, "streams are live", ""}, // it compresses no streams
				}},
				{"reverse_proxy 127.0.0.1:7766 {\nheader_up -Upgrade\nheader_up -Connection\n}\nrequest_body {\nmax_size 1MB\n}", []proxyFinding{
					{"websocket", Warning, "WebSockets do not pass, through Caddy", "header_up"},
					{"body", Warning, "does not arrive", "raise the limit"},
				}},
			},
		},
		"haproxy": {
			config: haproxyConfig,
			args:   func(config string) []string { return []string{"-db", "-f", config} },
			cases: []proxyCase{
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
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "proxy") // a short name, for sockets in it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			var sites []string
			for _, c := range proxy.cases {
				sites = append(sites, strings.ReplaceAll(c.site, "127.0.0.1:7766", to))
			}
			config := filepath.Join(dir, "config")
			if err := os.WriteFile(config, []byte(proxy.config(dir, sites)), 0o600); err != nil {
				t.Fatal(err)
			}
			startProxy(t, dir, name, proxy.args(config))
			for i, c := range proxy.cases {
				url := relay(t, proxySocket(dir, i))
				for _, want := range c.finds {
					t.Run(fmt.Sprintf("%d/%s", i, want.check), func(t *testing.T) {
						t.Parallel()
						checkProxy(t, url, want)
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

// proxySocket is where the site with a number listens.
func proxySocket(dir string, site int) string {
	return filepath.Join(dir, fmt.Sprintf("%d.sock", site))
}

func nginxConfig(upgrade string) func(dir string, sites []string) string {
	return func(dir string, sites []string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "daemon off;\nmaster_process off;\npid %s/pid;\nevents {}\nhttp {\naccess_log off;\n%s\n", dir, upgrade)
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			fmt.Fprintf(&b, "%s_temp_path %s/%s;\n", kind, dir, kind)
		}
		for i, site := range sites {
			fmt.Fprintf(&b, "server {\nlisten unix:%s;\n%s\n}\n", proxySocket(dir, i), site)
		}
		return b.String() + "}\n"
	}
}

func caddyConfig(dir string, sites []string) string {
	var b strings.Builder
	b.WriteString("{\nadmin off\nauto_https off\n}\n")
	for i, site := range sites {
		fmt.Fprintf(&b, "http://:%d {\nbind unix/%s\n%s\n}\n", i+1, proxySocket(dir, i), site)
	}
	return b.String()
}

func haproxyConfig(dir string, sites []string) string {
	var b strings.Builder
	b.WriteString("defaults\nmode http\ntimeout connect 60s\ntimeout client 120s\ntimeout server 120s\n")
	for i, site := range sites {
		name := fmt.Sprintf("spool%d", i)
		fmt.Fprintf(&b, "frontend front%d\nbind unix@%s\ndefault_backend %s\n%s\n", i, proxySocket(dir, i), name, strings.Replace(site, "backend spool", "backend "+name, 1))
	}
	return b.String()
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

// startProxy starts a proxy in the foreground, and waits until its sites listen.
func startProxy(t *testing.T, dir, name string, args []string) {
	t.Helper()
	bin, err := exec.LookPath(name)
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			skiptest.Missing(t, "%s is not installed", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.SysProcAttr = tether.Attr(9)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = log.Close()
	})
	for site := 0; site == 0 || fileExists(proxySocket(dir, site)); site++ {
		polltest.Until(t, name+" listening", func() bool {
			select {
			case <-ended:
				said, _ := os.ReadFile(log.Name())
				t.Fatalf("%s ended: %s", name, said)
			default:
			}
			conn, err := net.Dial("unix", proxySocket(dir, site))
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
	}
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// relay has a port of this machine lead to a unix socket, and returns its URL. So no
// proxy needs a port that another program could take.
func relay(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in) // either end may leave
					_ = out.(*net.UnixConn).CloseWrite()
				}()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}
