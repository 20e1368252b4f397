package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/tether"
	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
)

// program is the variable that makes the test binary another program.
const program = "LOCAL_TEST_PROGRAM"

// programs are what it can be, with the state directory as the argument.
var programs = map[string]func(dir string) error{
	// forgetful does not call ChildMain.
	"forgetful": func(dir string) error {
		_, err := local.Open(dir, local.Options{})
		return err
	},
	// starter starts a run that waits, says so, and waits to be killed.
	"starter": func(dir string) error {
		local.ChildMain()
		b, err := local.Open(dir, local.Options{InProcess: os.Getenv("IN_PROCESS") != ""})
		if err != nil {
			return err
		}
		run, err := spool.Start(context.Background(), b, shell("echo before; echo $$ >pid; read _ <proceed; echo after", filepath.Dir(dir)))
		if err != nil {
			return err
		}
		for _, err := range run.Events(context.Background(), 0) { // the first is in the log
			fmt.Println(run.ID(), err)
		}
		return nil
	},
}

func TestMain(m *testing.M) {
	if name := os.Getenv(program); name != "" && (len(os.Args) < 2 || !strings.HasSuffix(os.Args[1], "-role")) {
		if err := programs[name](os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	local.ChildMain()
	os.Exit(m.Run())
}

func shell(script, cwd string) spool.Spec {
	return spool.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Cwd: cwd, EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	}
}

// start starts the test binary as another program.
func start(t *testing.T, name, dir string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(append(os.Environ(), program+"="+name), env...)
	cmd.SysProcAttr = tether.Attr(9)
	return cmd
}

// open opens a state directory of the test, in both modes.
func open(t *testing.T, o local.Options) (local.Backend, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	b, err := local.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		servertest.EndKeepers(t, dir)
	})
	return b, dir
}

func modes(t *testing.T, test func(t *testing.T, o local.Options)) {
	for _, in := range []bool{false, true} {
		t.Run(fmt.Sprintf("in process %v", in), func(t *testing.T) { test(t, local.Options{InProcess: in}) })
	}
}

func TestOpenNeedsChildMain(t *testing.T) {
	out, err := start(t, "forgetful", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "local.ChildMain") || !strings.Contains(string(out), "first statement of main") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOpenRefusesUnknownSync(t *testing.T) {
	if _, err := local.Open(t.TempDir(), local.Options{Sync: "often"}); !errors.Is(err, spool.ErrInvalid) {
		t.Error(err)
	}
}

func TestEngines(t *testing.T) {
	t.Setenv("MPLBACKEND", "from the caller")
	modes(t, func(t *testing.T, o local.Options) {
		ctx := t.Context()
		b, _ := open(t, o)
		process, err := spool.Start(ctx, b, shell("echo hi", ""))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := process.Output(ctx); err != nil || string(out) != "hi\n" {
			t.Errorf("process: %q, %v", out, err)
		}
		kernel, err := spool.Start(ctx, b, python.KernelConfig{}.Spec())
		if err != nil {
			t.Fatal(err)
		}
		wantCell(t, kernel, `import os; print(os.environ["MPLBACKEND"])`, "from the caller\n")
		stop(t, kernel)
		if !race {
			sandbox, err := spool.Start(ctx, b, python.SandboxConfig{Files: []python.File{{Path: "/x", Text: "of the guest"}}}.Spec())
			if err != nil {
				t.Fatal(err)
			}
			wantCell(t, sandbox, `print(open("/x").read())`, "of the guest\n")
			stop(t, sandbox)
		}
		agent := spool.Spec{Engine: agent.Engine, Config: []byte(`{"agent":"nothing that exists"}`)}
		var refused *spool.StartError
		if _, err := spool.Start(ctx, b, agent); !errors.As(err, &refused) {
			t.Errorf("agent: %v", err)
		}
	})
}

func stop(t *testing.T, run *spool.Run) {
	t.Helper()
	if err := run.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantCell runs a cell and checks what it printed.
func wantCell(t *testing.T, run *spool.Run, code, want string) {
	t.Helper()
	turn, err := run.Exec(t.Context(), "", spool.Cell{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for e, err := range turn.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Bytes...)
	}
	if string(out) != want {
		t.Errorf("%q, want %q", out, want)
	}
}

func TestLimits(t *testing.T) {
	modes(t, func(t *testing.T, o local.Options) {
		o.Limits.Wall = 50 * time.Millisecond
		b, _ := open(t, o)
		run, err := spool.Start(t.Context(), b, shell("sleep 300", ""))
		if err != nil {
			t.Fatal(err)
		}
		if o, err := run.Wait(t.Context()); err != nil || o.Signal == "" {
			t.Errorf("%v, %v", o, err)
		}
	})
}

// TestProgramKilled kills a program in the middle of its run. With a keeper
// the run goes on; in process it is ended, and its log says that its outcome
// is not known.
func TestProgramKilled(t *testing.T) {
	modes(t, func(t *testing.T, o local.Options) {
		ctx := t.Context()
		dir := filepath.Join(t.TempDir(), "state")
		proceed, pid := fifotest.New(t, filepath.Dir(dir), "proceed"), fifotest.New(t, filepath.Dir(dir), "pid")
		env := ""
		if o.InProcess {
			env = "IN_PROCESS=1"
		}
		cmd := start(t, "starter", dir, env)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { servertest.EndKeepers(t, dir) })
		var id spool.RunID
		if _, err := fmt.Fscan(out, &id); err != nil {
			t.Fatal(err)
		}
		shell, err := pid.Line(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		b, err := local.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		run := spool.Attach(b, id)
		want := "before\nafter\n"
		if o.InProcess {
			want = "before\n"
			polltest.Until(t, "the end of the command", func() bool { // it was killed
				stat, err := os.ReadFile("/proc/" + shell + "/stat")
				return err != nil || strings.Contains(string(stat), ") Z ") || strings.Contains(string(stat), ") X ")
			})
		} else if err := proceed.Release(); err != nil {
			t.Fatal(err)
		}
		if out, err := run.Output(ctx); err != nil || string(out) != want {
			t.Errorf("%q, %v", out, err)
		}
		if outcome, err := run.Wait(ctx); err != nil || (outcome.Kind == spool.Unknown) != o.InProcess {
			t.Errorf("%v, %v", outcome, err)
		}
	})
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for _, c := range []struct{ spool, xdg, want string }{
		{"", "", "/home/me/.local/state/spool"},
		{"", "relative", "/home/me/.local/state/spool"},
		{"", "/xdg", "/xdg/spool"},
		{"/spool", "/xdg", "/spool"},
	} {
		t.Setenv("SPOOL_STATE", c.spool)
		t.Setenv("XDG_STATE_HOME", c.xdg)
		if dir, err := local.DefaultDir(); err != nil || dir != c.want {
			t.Errorf("%+v: %s, %v", c, dir, err)
		}
	}
}
