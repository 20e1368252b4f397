package process

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/egress"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/skiptest"
)

// web is a server on this machine, and an engine whose runs have a proxy.
type web struct {
	*Engine
	port string // of HTTP
	tls  string // of HTTPS
}

func newWeb(t *testing.T) *web {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s got %d bytes\n", r.URL.Path, len(b))
	})
	plain, secure := httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	w := &web{Engine: open(t, Options{})}
	for server, port := range map[*httptest.Server]*string{plain: &w.port, secure: &w.tls} {
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		*port = u.Port()
	}
	needs(t, w.Engine, spool.Isolation{Profile: "net-allow"})
	return w
}

// run starts a shell script with a proxy.
func (w *web) run(t *testing.T, i spool.Isolation, script string) (engine.Session, *enginetest.Log) {
	t.Helper()
	i.Profile = "net-allow"
	spec := shell(script)
	spec.Cwd, spec.Isolation, spec.EnvPolicy = t.TempDir(), &i, &spool.EnvPolicy{Inherit: "core"}
	return start(t, w.Engine, spec)
}

// notices returns the notices with a code.
func notices(t *testing.T, log *enginetest.Log, code string) []spool.Notice {
	t.Helper()
	var list []spool.Notice
	for _, e := range log.All(t) {
		if e.Kind != spool.KindNotice {
			continue
		}
		if n := enginetest.Data[spool.Notice](t, e); n.Code == code {
			list = append(list, n)
		}
	}
	return list
}

// TestNetworkByName runs curl behind the proxy: by HTTP, CONNECT and SOCKS5 it reaches
// the hosts that are named, and nothing else in any way.
func TestNetworkByName(t *testing.T) {
	w := newWeb(t)
	s, log := w.run(t, spool.Isolation{Hosts: []string{"localhost:" + w.port, "localhost:" + w.tls}}, fmt.Sprintf(`
		curl -sS --data-binary 12345 http://localhost:%[1]s/plain
		curl -sSk https://localhost:%[2]s/tunnel
		curl -sS --proxy socks5h://${http_proxy#http://} http://localhost:%[1]s/socks
		curl -s -o refused -w 'refused %%{http_code}\n' http://example.org/; cat refused
		curl -s -o /dev/null -w 'tunnel %%{http_connect}\n' https://example.org/
		curl -s --noproxy '*' http://127.0.0.1:%[1]s/direct && echo escaped
		curl -s --noproxy '*' --connect-timeout 5 http://192.0.2.1/ && echo escaped
		curl -s http://127.0.0.1:%[1]s/ | grep -c 'got' # the address is not named
		env | grep -ic _proxy=
		exit 0`, w.port, w.tls))
	if got := enginetest.Wait(t, s); got.Code != 0 {
		t.Fatalf("outcome %v:\n%s", got, log.Dump(t))
	}
	want := "/plain got 5 bytes\n/tunnel got 0 bytes\n/socks got 0 bytes\nrefused 403\n" +
		"spool: the run may not connect to example.org:80: no rule allows it (allow it with --allow-net example.org)\ntunnel 403\n0\n9\n"
	if got := string(log.Output(t, spool.Stdout)); got != want {
		t.Errorf("the run said\n%s\nwant\n%s\n%s", got, want, log.Dump(t))
	}
	hosts := make(map[string]bool)
	for _, n := range notices(t, log, isolate.NoticeHost) {
		var d egress.Decision
		if err := json.Unmarshal(n.Data, &d); err != nil {
			t.Fatal(err)
		}
		hosts[fmt.Sprintf("%s:%d %t", d.Host, d.Port, d.Allowed)] = true
	}
	for _, h := range []string{"localhost:" + w.port + " true", "localhost:" + w.tls + " true", "example.org:80 false", "example.org:443 false"} {
		if !hosts[h] {
			t.Errorf("no notice of %s: %v", h, hosts)
		}
	}
	totals := notices(t, log, isolate.NoticeTraffic)
	if len(totals) != 1 {
		t.Fatalf("%d totals", len(totals))
	}
	var flows []egress.Flow
	if err := json.Unmarshal(totals[0].Data, &flows); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(flows, func(f egress.Flow) bool { return f.Host == "localhost" && fmt.Sprint(f.Port) == w.port })
	if i < 0 || flows[i].Connections < 2 || flows[i].UpBytes < 100 || flows[i].DownBytes < 100 {
		t.Errorf("flows %+v", flows)
	}
	if has := s.(engine.Isolated).Isolation(); !slices.Contains(has.Guarantees, "NP") || slices.Contains(has.Guarantees, "N0") {
		t.Errorf("isolation %+v", has)
	}
}

// TestNetworkOfEachRunIsItsOwn checks that two runs at once have two proxies, and that
// the rules of one are not those of the other.
func TestNetworkOfEachRunIsItsOwn(t *testing.T) {
	w := newWeb(t)
	script := fmt.Sprintf(`echo up; read x; curl -s -o /dev/null -w '%%{http_code}' http://localhost:%s/`, w.port)
	var sessions []engine.Session
	var logs []*enginetest.Log
	for _, hosts := range [][]string{{"localhost"}, {"example.org"}} {
		spec := shell(script)
		spec.Cwd, spec.Stdin, spec.Isolation = t.TempDir(), true, &spool.Isolation{Profile: "net-allow", Hosts: hosts}
		s, log := start(t, w.Engine, spec)
		log.UntilOutput(t, spool.Stdout, "up")
		sessions, logs = append(sessions, s), append(logs, log)
	}
	for i, want := range []string{"up\n200", "up\n000"} { // the second does not use the proxy for its own localhost
		if err := sessions[i].Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
		enginetest.Wait(t, sessions[i])
		if got := string(logs[i].Output(t, spool.Stdout)); got != want {
			t.Errorf("run %d said %q, want %q", i, got, want)
		}
	}
}

// TestAskAboutAHost answers the asks of a run about hosts that no rule names.
func TestAskAboutAHost(t *testing.T) {
	w := newWeb(t)
	enginetest.AskHosts(t, func(t *testing.T, i spool.Isolation) *enginetest.HostRun {
		spec := shell(`while read url; do curl -s -o /dev/null -w '%{http_code}\n' --noproxy '' "$url"; done`)
		spec.Cwd, spec.Stdin, spec.Isolation, spec.EnvPolicy = t.TempDir(), true, &i, &spool.EnvPolicy{Inherit: "core"}
		s, log := start(t, w.Engine, spec)
		lines := 0
		return &enginetest.HostRun{Session: s, Log: log, Get: func(t testing.TB, url string) func() string {
			t.Helper()
			if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte(url + "\n")}); err != nil {
				t.Fatal(err)
			}
			lines++
			n := lines
			return func() string {
				t.Helper()
				var said string
				log.Until(t, "a status", func(e spool.Event) bool {
					if e.Kind == spool.KindOutput && e.Stream == spool.Stdout {
						said += string(e.Bytes)
					}
					return strings.Count(said, "\n") >= n
				})
				return strings.Split(said, "\n")[n-1]
			}
		}}
	})
}

// TestAskEndsWithTheRun kills a run that waits for an answer.
func TestAskEndsWithTheRun(t *testing.T) {
	w := newWeb(t)
	s, log := w.run(t, spool.Isolation{AskHosts: true}, `curl -s http://example.org/`)
	e := log.Until(t, "an ask", func(e spool.Event) bool { return e.Kind == spool.KindAsk })
	control(t, s, spool.Control{Op: spool.ControlKill})
	enginetest.Wait(t, s)
	closed := notices(t, log, spool.NoticeAskClosed)
	if len(closed) != 1 || closed[0].Ask != e.Seq {
		t.Errorf("notices %+v\n%s", closed, log.Dump(t))
	}
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputAnswer, Data: json.RawMessage(fmt.Sprintf(`{"ask":%d,"data":"allow"}`, e.Seq))}); err != nil {
		t.Error(err)
	}
}

// TestSecretFileIsHidden checks that a run cannot read the file with a secret, and that
// one which is not there is an error.
func TestSecretFileIsHidden(t *testing.T) {
	w := newWeb(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("Bearer s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, log := w.run(t, spool.Isolation{Secrets: []string{"api.example.org:Authorization=" + file}}, "cat "+file+"; env")
	enginetest.Wait(t, s)
	if dump := log.Dump(t); strings.Contains(dump, "s3cr3t") {
		t.Errorf("the log has the secret:\n%s", dump)
	}
	for _, bad := range []string{"api.example.org:Authorization=" + file + "2", "api.example.org:Authorization=" + filepath.Dir(file), "api.example.org:Authorization", "*:A=" + file} {
		spec := shell("true")
		spec.Cwd, spec.Isolation = t.TempDir(), &spool.Isolation{Profile: "net-allow", Secrets: []string{bad}}
		if _, err := w.Start(t.Context(), spec, enginetest.NewLog()); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
