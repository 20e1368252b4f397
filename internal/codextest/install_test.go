package codextest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestBinary(t *testing.T) {
	out, err := exec.Command(Binary(t), "--version").Output()
	if want := "codex-cli " + Version; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("got %q, %v, want %s", out, err, want)
	}
}

// fakeNPM puts a script in the place of npm.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestInstallFails(t *testing.T) {
	for _, tt := range []struct{ name, script, want string }{
		{"npm fails", "echo no network >&2; exit 1", "no network"},
		{"no native binary", "exit 0", "without its native binary"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakeNPM(t, tt.script)
			parent := t.TempDir()
			_, err := Install(filepath.Join(parent, "codex"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if left, _ := filepath.Glob(filepath.Join(parent, "codex*")); len(left) != 1 { // the lock
				t.Errorf("left behind: %q", left)
			}
		})
	}
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := Install(filepath.Join(t.TempDir(), "codex"))
		if err == nil || !strings.Contains(err.Error(), "npm is needed") {
			t.Errorf("got error %v, want one about npm", err)
		}
	})
}

// TestInstallOnce checks that of many installs at once only one calls npm,
// and that half an install is replaced.
func TestInstallOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codex")
	native, err := nativePath("")
	if err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("NATIVE", native)
	t.Setenv("CALLS", calls)
	fakeNPM(t, `echo call >>"$CALLS"
mkdir -p "$3/$(dirname "$NATIVE")"
echo codex >"$3/$NATIVE"
chmod +x "$3/$NATIVE"
`)
	if err := os.MkdirAll(filepath.Join(dir, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := Install(dir)
			if err != nil || path != filepath.Join(dir, native) {
				t.Errorf("installed %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	wantFile(t, calls, "call\n")
}
