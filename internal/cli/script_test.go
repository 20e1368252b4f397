package cli_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spool-run/spool/internal/cli"
	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/local"
)

// built is a testing.M that also removes the binary that the tests built.
type built struct{ *testing.M }

func (b built) Run() int {
	// A program that was started with a signal ignored, as by nohup or in the
	// background of a script, starts others that way. A signal that it handles
	// has its default effect in them.
	ignored := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(ignored, s)
		}
	}
	defer signal.Stop(ignored)
	return servertest.Main(b.M)
}

func TestMain(m *testing.M) {
	testscript.Main(built{m}, map[string]func(){
		"spool": func() {
			local.ChildMain()
			os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// raceOptions keep a race-enabled spool from sleeping a second when it exits.
const raceOptions = "atexit_sleep_ms=0"

// The scripts wait for processes with named pipes: opening one waits for the
// other side, so that no script sleeps.
func TestScripts(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "spool-test", "sandbox")
	prepareSandbox(t, cache)
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Deadline:            time.Now().Add(30 * time.Minute), // of all scripts; each takes seconds
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", raceOptions)
			e.Setenv("SPOOL_STATE", filepath.Join(e.WorkDir, "state"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("SANDBOX_CACHE", cache)
			e.Setenv("SOURCE", source)
			e.Setenv("BUILT", filepath.Dir(servertest.Binary(t)))
			e.Setenv("OWN_ADDRESS", strings.TrimPrefix(servertest.OwnAddress(), "ws://")) // of a server that is started again
			e.Defer(func() { servertest.EndKeepers(t, e.WorkDir) })                       // before the directory is removed
			return nil
		},
		Condition: missing,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkfifo":   mkfifo,
			"readline": readline,
			"code":     code,
			"gone":     gone,
			"gvisor":   gvisor,
		},
	})
}

// gvisor puts gVisor's runsc in the PATH of a script.
func gvisor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: gvisor")
	}
	dir, err := gvisortest.Cached()
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Setenv("PATH", dir+string(os.PathListSeparator)+ts.Getenv("PATH"))
}

// prepareSandbox compiles the embedded interpreter with a binary without the
// race detector, with which compiling takes minutes. The scripts that use the
// interpreter run the same binary, which $BUILT names.
func prepareSandbox(t *testing.T, cache string) {
	t.Helper()
	cmd := exec.Command(servertest.Binary(t), "--state", filepath.Join(cache, "state"), "box", "-c", "print(6*7)")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	var stderr bytes.Buffer // says how preparing gets on, if it takes long
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "42" {
		t.Fatalf("prepare the sandbox: %v: %s%s", err, out, &stderr)
	}
}

// missing is the condition [missing:program] of a script that skips itself. In
// CI, a script without its program fails. The program gvisor is built if it is missing.
func missing(condition string) (bool, error) {
	program, ok := strings.CutPrefix(condition, "missing:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	var err error
	if program == "gvisor" {
		_, err = gvisortest.Cached()
	} else {
		_, err = exec.LookPath(program)
	}
	if err != nil && os.Getenv("CI") != "" {
		return false, fmt.Errorf("%w; CI must not skip this script", err)
	}
	return err != nil, nil
}

// mkfifo makes named pipes.
func mkfifo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: mkfifo file…")
	}
	for _, name := range args {
		ts.Check(syscall.Mkfifo(ts.MkAbs(name), 0o600))
	}
}

// readline reads one line from a file, or waits for it in a named pipe, and
// sets a variable if one is named.
func readline(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: readline file [variable]")
	}
	line, err := firstLine(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(args) == 2 {
		ts.Setenv(args[1], strings.TrimSuffix(line, "\n"))
	}
}

func firstLine(name string) (string, error) {
	for {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		line, err := bufio.NewReader(f).ReadString('\n')
		f.Close()
		if line == "" && errors.Is(err, io.EOF) {
			continue // the last writer closed the pipe
		}
		return line, err
	}
}

// code runs a command that must exit with this code.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code n command…")
	}
	script := `"$@"; c=$?; [ $c = ` + args[0] + ` ] || { echo "exit code $c" >&2; exit 1; }`
	ts.Check(ts.Exec("sh", append([]string{"-c", script, "sh"}, args[1:]...)...))
}

// gone fails if a process runs. A zombie counts as gone.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone pid")
	}
	// On a loaded machine a signal may take a moment.
	if !polltest.Holds(func() bool {
		b, err := os.ReadFile(filepath.Join("/proc", args[0], "stat"))
		_, after, _ := strings.Cut(string(b), ") ")
		return err != nil || strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
	}) {
		ts.Fatalf("process %s runs", args[0])
	}
}
