package keeper_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
)

// With these variables the test binary runs a keeper.
const (
	keeperDir   = "KEEPER_TEST_DIR"
	keeperBuild = "KEEPER_TEST_BUILD"
	keeperIdle  = "KEEPER_TEST_IDLE" // a duration; one minute if unset
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // the first process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	if dir := os.Getenv(keeperDir); dir != "" {
		os.Exit(serve(dir, os.Getenv(keeperBuild)))
	}
	leaktest.Main(m)
}

// engines are the engines of the keepers.
var engines = map[string]host.NewEngine{
	spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
}

func hostOptions(dir string) host.Options {
	return host.Options{
		Dir: dir, Engines: engines,
		FileAfter: 20 * time.Millisecond, // while tests read and list the runs
		Sweep:     func(owner string) error { _, err := launch.SweepOwner(owner); return err },
	}
}

func serve(dir, build string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	idle := time.Minute // longer than any test leaves a keeper idle: stateDir ends it
	if text := os.Getenv(keeperIdle); text != "" {
		var err error
		if idle, err = time.ParseDuration(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	err := keeper.Serve(ctx, keeper.ServeOptions{
		Host: hostOptions(dir), Build: build, Idle: idle,
		Ready: func() { fmt.Println(keeper.ReadyText); os.Stdout.Close() },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func open(t testing.TB, dir, build string) *keeper.Backend {
	t.Helper()
	b, err := keeper.Open(keeper.Options{
		Dir: dir, Build: build, Host: hostOptions(dir),
		Keeper: func(dir string) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), keeperDir+"="+dir, keeperBuild+"="+build)
			return cmd
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// stateDir returns a directory whose keepers end with the test.
func stateDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		polltest.Until(t, "the end of the keepers", func() bool {
			pids := keepers(dir)
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
			return len(pids) == 0
		})
	})
	return dir
}

// keepers returns the processes that are keepers of a directory. A keeper that ends
// has no file below hosts any more while it still closes its own.
func keepers(dir string) (pids []int) {
	mark := []byte("\x00" + keeperDir + "=" + dir + "\x00")
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		// Its children have their own environment, and a process that has ended none.
		if env, err := os.ReadFile(filepath.Join(proc, "environ")); err == nil && bytes.Contains(env, mark) {
			pid, _ := strconv.Atoi(filepath.Base(proc))
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestBackend(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) spool.Backend { return open(t, stateDir(t), "one") })
}

// Arguments and variables arrive byte for byte, even if they are not text.
func TestStartIsByteExact(t *testing.T) {
	b := open(t, stateDir(t), "one")
	r, err := spool.Start(t.Context(), b, spool.Spec{
		Argv: []string{"/bin/sh", "-c", `printf '%s|%s' "$1" "$X"`, "sh", "\xff\x01"}, Env: map[string]string{"X": "\xfe\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Bytes...)
	}
	if want := "\xff\x01|\xfe\n"; string(out) != want {
		t.Errorf("output is %q, want %q", out, want)
	}
}
