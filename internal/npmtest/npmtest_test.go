package npmtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeNPM replaces npm with a script.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func program() Program {
	return Program{Name: "tool", Packages: []string{"tool@1.0.0"}, File: "bin/tool"}
}

func TestInstallFails(t *testing.T) {
	broken := program()
	broken.Finish = func(string) error { return errors.New("disk full") }
	for _, tt := range []struct {
		name, script, want string
		program            Program
	}{
		{"npm fails", "echo no network >&2; exit 1", "no network", program()},
		{"no executable", "exit 0", "without bin/tool", program()},
		{"not finished", "exit 0", "disk full", broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakeNPM(t, tt.script)
			parent := t.TempDir()
			_, err := tt.program.Install(filepath.Join(parent, "tool"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if left, _ := filepath.Glob(filepath.Join(parent, "tool*")); len(left) != 1 { // the lock
				t.Errorf("left behind: %q", left)
			}
		})
	}
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := program().Install(filepath.Join(t.TempDir(), "tool"))
		if err == nil || !strings.Contains(err.Error(), "npm is needed") {
			t.Errorf("got error %v, want one about npm", err)
		}
	})
}

// TestInstallOnce checks that only one of many concurrent installs calls npm,
// and that an incomplete install is replaced.
func TestInstallOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tool")
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	fakeNPM(t, `echo call >>"$CALLS"
mkdir -p "$3/bin"
echo tool >"$3/bin/tool"
`)
	p := program()
	p.Finish = func(dir string) error { return os.Chmod(filepath.Join(dir, p.File), 0o755) }
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := p.Install(dir)
			if err != nil || path != filepath.Join(dir, p.File) {
				t.Errorf("installed %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	if got, err := os.ReadFile(calls); err != nil || string(got) != "call\n" {
		t.Errorf("npm was called: %q, %v", got, err)
	}
}
