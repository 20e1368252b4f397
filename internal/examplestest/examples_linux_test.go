package examplestest

import (
	"bufio"
	"bytes"
	"image/png"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/tether"
)

// bin holds the programs.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "spool-examples-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		cmd := exec.Command("go", "build", "-o", bin+"/", "./...")
		cmd.Dir = filepath.Join("..", "..", "examples")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic("build the examples: " + err.Error() + "\n" + string(out))
		}
		return m.Run()
	}())
}

// example is a program with a state directory of its own.
type example struct {
	t     *testing.T
	dir   string // its working directory
	state string
	env   map[string]string
}

func newExample(t *testing.T) *example {
	t.Helper()
	t.Parallel()
	x := &example{t: t, dir: t.TempDir(), state: filepath.Join(t.TempDir(), "state")}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	x.env = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": x.dir, "SPOOL_STATE": x.state,
		"XDG_CACHE_HOME": filepath.Join(cache, "spool-test", "sandbox"), // the interpreter is compiled once
	}
	t.Cleanup(func() { servertest.EndKeepers(t, x.state) })
	return x
}

// run runs a program that must exit with a code, and returns its output.
func (x *example) run(code int, name string, args ...string) (stdout, stderr string) {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), filepath.Join(bin, name), args...)
	cmd.Dir = x.dir
	for name, value := range x.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = tether.Attr(9)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		x.t.Fatalf("%s: %v, want exit code %d\n%s\n%s", name, err, code, &out, &errs)
	}
	return out.String(), errs.String()
}

func TestCommand(t *testing.T) {
	x := newExample(t)
	stdout, stderr := x.run(3, "command", "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
	if stdout != "out\n" || !strings.Contains(stderr, "\nerr\nexited 3\n") {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
}

// TestAPI has two users of a server start runs, of which each sees their own.
func TestAPI(t *testing.T) {
	x := newExample(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "api"))
	for name, value := range x.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = tether.Attr(9)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ask := func(user, password, method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSpace(url)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(user, password)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	if status, answer := ask("alice", "wonderland", "POST", "/v1/runs?wait_ms=50000", `{"id":"hers","argv":["/bin/echo","hi"]}`); status != 201 {
		t.Errorf("a start: %d %s", status, answer)
	}
	for _, tt := range []struct {
		user, password string
		status         int
	}{{"alice", "wonderland", 200}, {"bob", "builder", 404}, {"alice", "builder", 401}, {"", "", 401}} {
		if status, answer := ask(tt.user, tt.password, "GET", "/v1/runs/hers", ""); status != tt.status {
			t.Errorf("%s sees %d %s, want %d", tt.user, status, answer, tt.status)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after a signal: %v", err)
	}
}

func TestPlot(t *testing.T) {
	x := newExample(t)
	stdout, _ := x.run(0, "plot", "-python", pytest.Python(t), "figure.png")
	if !strings.HasPrefix(stdout, "prepared 100 points\n") || !strings.Contains(stdout, "saved figure.png") {
		t.Errorf("stdout %q", stdout)
	}
	f, err := os.Open(filepath.Join(x.dir, "figure.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if figure, err := png.Decode(f); err != nil || figure.Bounds().Dx() < 100 {
		t.Errorf("the figure: %v", err)
	}
}

func TestUntrusted(t *testing.T) {
	x := newExample(t)
	data := filepath.Join(x.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "answer"), []byte("42"), 0o600); err != nil {
		t.Fatal(err)
	}
	const code = `
import socket, sys
print("read", open("/data/answer").read())
for what, attempt in {
    "write": lambda: open("/data/answer", "w"),
    "host": lambda: open("/etc/hostname"),
    "network": lambda: socket.create_connection(("127.0.0.1", 80)),
}.items():
    try:
        attempt()
    except OSError as e:
        print("refused:", what)
sys.exit(5)
`
	stdout, _ := x.run(5, "untrusted", data, code)
	if want := "read 42\nrefused: write\nrefused: host\nrefused: network\n"; !strings.HasPrefix(stdout, want) {
		t.Errorf("stdout %q, want %q", stdout, want)
	}
	if b, err := os.ReadFile(filepath.Join(data, "answer")); err != nil || string(b) != "42" {
		t.Errorf("the file: %q, %v", b, err)
	}
}

// TestApprove has a real agent ask twice: what is allowed is done, and what is
// denied is not.
func TestApprove(t *testing.T) {
	for _, agent := range []string{agenttest.Codex, agenttest.Claude} {
		t.Run(agent, func(t *testing.T) {
			x := newExample(t)
			model, err := modeltest.New(modeltest.ByTurn(
				modeltest.Shell("echo made >made.txt"), modeltest.Shell("rm precious.txt"), modeltest.Say("That is all.")))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := model.Close(); err != nil {
					t.Error(err)
				}
			})
			maps.Copy(x.env, agenttest.Home(t, agent, model))
			if err := os.WriteFile(filepath.Join(x.dir, "precious.txt"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			stdout, _ := x.run(0, "approve", agent, "Make a file and remove the other.")
			for _, want := range []string{"allow: ", "echo made >made.txt", "deny: ", "rm precious.txt", "That is all.\n"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q in\n%s", want, stdout)
				}
			}
			if _, err := os.Stat(filepath.Join(x.dir, "made.txt")); err != nil {
				t.Errorf("what was allowed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(x.dir, "precious.txt")); err != nil {
				t.Errorf("what was denied: %v", err)
			}
		})
	}
}

func TestResume(t *testing.T) {
	x := newExample(t)
	stdout, _ := x.run(0, "resume")
	const want = "the reader was killed after event 5\nall 40 lines were read once; the command exited 0\nruns still running: 0\n"
	if stdout != want {
		t.Errorf("stdout %q, want %q", stdout, want)
	}
}
