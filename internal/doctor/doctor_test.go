//go:build linux

package doctor

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/peer"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/local"
)

func TestMain(m *testing.M) {
	local.ChildMain()
	leaktest.Main(m)
}

// TestRun checks that findings come in the order of the checks, that a check
// which does not end is a problem, and that progress names what runs.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration, text string) func(context.Context) []Finding {
			return one(func(ctx context.Context) Finding {
				select {
				case <-time.After(d):
					return ok("%s", text)
				case <-ctx.Done():
					return ok("too late")
				}
			})
		}
		var most []string
		var got []string
		release := make(chan struct{})
		for f := range Run(t.Context(), []Check{
			{Group: "g", Name: "slow", Try: after(3*time.Second, "slow")},
			{Group: "g", Name: "quick", Try: after(time.Millisecond, "quick")},
			{Group: "g", Name: "hangs", Deadline: time.Second, Try: one(func(context.Context) Finding { <-release; return ok("never") })},
			{Group: "g", Name: "ends late", Deadline: time.Second, Try: after(time.Hour, "never")},
		}, func(running []string) {
			if len(running) > len(most) {
				most = slices.Clone(running)
			}
		}) {
			got = append(got, f.Check+" "+string(f.Verdict)+" "+f.Text)
			if f.Group != "g" || f.Verdict != OK && f.Next == "" {
				t.Errorf("%+v", f)
			}
		}
		close(release)
		want := []string{"slow ok slow", "quick ok quick", "hangs problem no result after 1s", "ends late ok too late"}
		if !slices.Equal(got, want) {
			t.Errorf("found %q, want %q", got, want)
		}
		// Time does not pass before all of them wait.
		slices.Sort(most)
		if !slices.Equal(most, []string{"ends late", "hangs", "quick", "slow"}) {
			t.Errorf("progress named %q", most)
		}
	})
}

func TestSelect(t *testing.T) {
	all := Checks(Options{})
	state := 0
	for _, c := range all {
		if c.Group == "state" {
			state++
		}
	}
	for _, tt := range []struct {
		names []string
		want  int
	}{{nil, len(all)}, {[]string{"kill"}, 1}, {[]string{"state"}, state}, {[]string{"state", "disk"}, state}} {
		if got, err := Select(all, tt.names); err != nil || len(got) != tt.want {
			t.Errorf("%q: %d checks, %v", tt.names, len(got), err)
		}
	}
	if _, err := Select(all, []string{"kill", "nonsense"}); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Error(err)
	}
	seen := make(map[string]bool)
	for _, c := range all {
		if seen[c.Name] || c.Group == "" {
			t.Errorf("two checks are named %q, or it has no group", c.Name)
		}
		seen[c.Name] = true
	}
}

// state makes a private state directory.
func state(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(filepath.Join(dir, "hosts"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func chmod(t *testing.T, mode os.FileMode, path ...string) {
	t.Helper()
	if err := os.Chmod(filepath.Join(path...), mode); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, mode os.FileMode, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	chmod(t, mode, name)
}

// want checks the worst verdict, its text and its next step.
func want(t *testing.T, found []Finding, v Verdict, text, next string) {
	t.Helper()
	for _, f := range found {
		if f.Verdict != OK && f.Next == "" {
			t.Errorf("no next step: %+v", f)
		}
		if f.Verdict == v && strings.Contains(f.Text, text) && strings.Contains(f.Next, next) && Worst(found) == v {
			return
		}
	}
	t.Errorf("found %+v, want %s %q, next %q", found, v, text, next)
}

func TestDirectory(t *testing.T) {
	for _, tt := range []struct {
		name       string
		change     func(dir string)
		want       Verdict
		text, next string
	}{
		{"private", func(string) {}, OK, "only you can enter", ""},
		{"missing", func(dir string) { _ = os.RemoveAll(dir) }, OK, "does not exist yet", ""},
		{"writable by all", func(dir string) { chmod(t, 0o777, dir) }, Problem, "Spool refuses it", "chmod 700"},
		{"readable by all", func(dir string) { chmod(t, 0o755, dir) }, Problem, "look into", "chmod 700"},
		{"entered by all", func(dir string) { chmod(t, 0o711, dir) }, Problem, "look into", "chmod 700"},
		{"a file", func(dir string) { _ = os.RemoveAll(dir); write(t, 0o600, dir) }, Problem, "not a directory", "--state"},
		{"below a directory of all", func(dir string) { chmod(t, 0o777, filepath.Dir(dir)) }, Warning, "replace the state directory", "chmod go-w"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := state(t)
			tt.change(dir)
			want(t, []Finding{directory(dir)}, tt.want, tt.text, tt.next)
		})
	}
	if os.Geteuid() == 0 {
		dir := state(t)
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		want(t, []Finding{directory(dir)}, Problem, "belongs to user 65534", "--state")
	}
}

func TestStateFiles(t *testing.T) {
	dir := state(t)
	check := func() []Finding { return stateFiles(t.Context(), dir) }
	write(t, 0o600, dir, "keeper.log")
	want(t, check(), OK, "2 files", "")
	write(t, 0o644, dir, "keeper.log")
	want(t, check(), Warning, "keeper.log", "chmod -R go-rwx")
	chmod(t, 0o711, dir)
	want(t, check(), Problem, "can read", "chmod -R go-rwx")
	chmod(t, 0o700, dir)
	write(t, 0o620, dir, "hosts", "a.json")
	want(t, check(), Problem, "hosts/a.json", "chmod -R go-rwx")
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "keeper.log"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		want(t, check(), Problem, "belong to other users", "remove what you did not make")
	}
}

func TestTokenFiles(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	server := []process{{args: []string{"spool", "exec-server", "--ws-token-file", "token"}, cwd: dir}}
	for name, check := range map[string]func() []Finding{
		"of this command": func() []Finding {
			return tokenFiles(Options{TokenFile: token}, func() ([]process, error) { return nil, nil })
		},
		"of a server": func() []Finding { return tokenFiles(Options{}, func() ([]process, error) { return server, nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(token)
			want(t, check(), Warning, "cannot be read", "restore it")
			write(t, 0o644, token)
			want(t, check(), Problem, "other users have access", "chmod 600")
			write(t, 0o600, token)
			want(t, check(), OK, "closed to others: 1", "")
		})
	}
	want(t, tokenFiles(Options{}, func() ([]process, error) { return nil, nil }), OK, "no server or command", "")
}

func TestSecretFiles(t *testing.T) {
	got := secretFiles([]string{"spool", "exec-server", "--ws-token-file", "a", "--listen", "b", "--tls-key=c", "--token-file"})
	if !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("found %q", got)
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	want(t, disk(filepath.Join(dir, "missing", "too")), OK, "wrote and flushed", "")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if os.Geteuid() != 0 { // root may write anywhere
		chmod(t, 0o500, dir)
		want(t, disk(dir), Problem, "cannot write", "--state")
	}
	want(t, disk("/proc/self"), Problem, "cannot write", "--state")
}

func TestFileLocks(t *testing.T) {
	want(t, []Finding{fileLocks(t.Context(), t.TempDir())}, OK, "refused a locked file", "")
	want(t, []Finding{fileLocks(t.Context(), "/proc/self")}, Problem, "", "--state")
}

func TestKeepers(t *testing.T) {
	dir := state(t)
	check := func() []Finding { return keepers(t.Context(), dir) }
	want(t, check(), OK, "no keeper runs", "")
	if err := os.WriteFile(filepath.Join(dir, "hosts", "dead.json"), []byte(`{"id":"dead","pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, check(), Warning, "keeper dead was killed", "run spool ps")
	if err := os.Remove(filepath.Join(dir, "hosts", "dead.json")); err != nil {
		t.Fatal(err)
	}
	hold(t, filepath.Join(dir, "hosts", "deaf.json"), `{"id":"deaf","pid":`+strconv.Itoa(os.Getpid())+`,"address":"keeper:`+dir+`/no.sock"}`)
	want(t, check(), Warning, "no command can connect", "kill "+strconv.Itoa(os.Getpid()))
}

// TestLeftProcesses starts a process whose keeper does not exist.
func TestLeftProcesses(t *testing.T) {
	owner := "doctortest" + strconv.FormatInt(time.Now().UnixNano(), 36)
	l, err := launch.New(launch.Options{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	tree, err := l.Start(launch.Command{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Release()
	want(t, leftProcesses(t.Context()), Warning, owner, "kill -9 "+strconv.Itoa(tree.Pid()))
	hold(t, filepath.Join(state(t), "hosts", owner+".json"), "{}") // its keeper lives
	for _, f := range leftProcesses(t.Context()) {
		if strings.Contains(f.Text, owner) {
			t.Errorf("found %+v", f)
		}
	}
	if err := tree.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := tree.Reap(); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	at := func(address string, args ...string) listener {
		return listener{process{pid: os.Getpid(), args: args}, netip.MustParseAddrPort(address)}
	}
	let, refused := attempt{let: true}, attempt{}
	for _, tt := range []struct {
		listener listener
		attempts attempts
		want     Verdict
		text     string
	}{
		{at("0.0.0.0:9"), attempts{own: let}, Problem, "every client that can reach this machine"},
		{at("[::]:9", insecureFlag), attempts{own: attempt{let: true, tls: true}}, Problem, "every client that can reach this machine"},
		{at("127.0.0.1:9"), attempts{let, &let}, Problem, "every user of this machine"},
		{at("127.0.0.1:9", insecureFlag), attempts{let, &let}, Warning, "every user of this machine"},
		{at("127.0.0.1:9", insecureFlag), attempts{own: let}, Warning, "every user of this machine"},
		{at("127.0.0.1:9"), attempts{let, &refused}, OK, "refused another user's"},
		{at("127.0.0.1:9"), attempts{own: let}, OK, "only your processes"},
		{at("10.1.2.3:9"), attempts{own: refused}, Warning, "unencrypted"},
		{at("10.1.2.3:9"), attempts{own: attempt{tls: true}}, OK, "refused"},
		{at("127.0.0.1:9"), attempts{refused, &refused}, OK, "refused a client"},
		{at("127.0.0.1:9"), attempts{own: attempt{err: os.ErrDeadlineExceeded}}, Warning, "cannot tell whom"},
		{at("127.0.0.1:9"), attempts{let, &attempt{err: os.ErrDeadlineExceeded}}, Warning, "cannot tell whether"},
	} {
		want(t, []Finding{judge(tt.listener, tt.attempts)}, tt.want, tt.text, "")
	}
}

// TestTry tries servers with and without TLS.
func TestTry(t *testing.T) {
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status == http.StatusSwitchingProtocols {
				w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
				w.Header().Set("Connection", "Upgrade")
			}
			w.WriteHeader(status)
		})
	}
	for _, tt := range []struct {
		name   string
		status int
		tls    *tls.Config
		want   attempt
	}{
		{"open", 101, nil, attempt{let: true}},
		{"refuses", 401, nil, attempt{}},
		{"refuses other users", 403, nil, attempt{}},
		{"open over TLS", 101, &tls.Config{}, attempt{let: true, tls: true}},
		{"wants a token over TLS", 401, &tls.Config{}, attempt{tls: true}},
		{"wants a certificate", 101, &tls.Config{ClientAuth: tls.RequireAnyClientCert}, attempt{tls: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(answer(tt.status))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if s.TLS = tt.tls; s.TLS != nil {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			at := s.Listener.Addr().(*net.TCPAddr).AddrPort()
			if got := try(t.Context(), dialTCP(at, os.Geteuid())); got != tt.want {
				t.Errorf("found %+v, want %+v", got, tt.want)
			}
		})
	}
	for status, want := range map[int]attempt{101: {let: true}, 401: {}} { // as "spool serve" has its page and its WebSocket
		mux := http.NewServeMux()
		mux.Handle("/", answer(http.StatusOK))
		mux.Handle("/v1/rpc", answer(status))
		s := httptest.NewServer(mux)
		if got := try(t.Context(), dialTCP(s.Listener.Addr().(*net.TCPAddr).AddrPort(), os.Geteuid())); got != want {
			t.Errorf("a page, and %d at its WebSocket: found %+v, want %+v", status, got, want)
		}
		s.Close()
	}
	s := httptest.NewServer(answer(http.StatusTeapot))
	at := s.Listener.Addr().(*net.TCPAddr).AddrPort()
	if got := try(t.Context(), dialTCP(at, os.Geteuid())); got.err == nil {
		t.Errorf("another program: %+v", got)
	}
	s.Close()
	if got := try(t.Context(), dialTCP(at, os.Geteuid())); got.err == nil {
		t.Errorf("no program: %+v", got)
	}
}

// TestTryOfAnotherUser checks that an attempt is made as another user.
func TestTryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can become another user")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := dialAs(nobody, l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if uid, err := peer.UID(s); err != nil || uid != nobody {
		t.Errorf("user %d, %v", uid, err)
	}
	if os.Geteuid() != 0 {
		t.Error("this process became another user")
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000:0016":                         "0.0.0.0:22",
		"00000000000000000000000001000000:0050": "[::1]:80",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
	} {
		if got, err := parseAddress(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "01:1", "0100007F", "0100007F:10000", "zz00007F:1"} {
		if got, err := parseAddress(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestPrograms runs the checks that start other programs.
func TestPrograms(t *testing.T) {
	want(t, []Finding{pythonKernel(t.Context())}, OK, "a kernel ran a cell", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("VIRTUAL_ENV", "")
	want(t, []Finding{pythonKernel(t.Context())}, Warning, "no kernel starts", "install Python")
	want(t, []Finding{agents(t.Context())}, OK, "none is installed", "spool agent list")
}
