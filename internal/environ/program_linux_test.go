package environ

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestLookProgram(t *testing.T) {
	cwd := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/tool": 0o755, "tool": 0o755, "denied/tool": 0o644, "denied/only": 0o644} {
		file := filepath.Join(cwd, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(cwd, "dirs", "tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, want string
		err              error
	}{
		{"tool", "PATH=bin", "bin/tool", nil},
		{"tool", "PATH=", "./tool", nil},
		{"tool", "PATH=" + cwd + "/bin", cwd + "/bin/tool", nil},
		{"tool", "PATH=denied:dirs:bin", "bin/tool", nil},
		{"only", "PATH=denied:bin", "", syscall.EACCES},
		{"none", "PATH=bin", "", syscall.ENOENT},
		{"", "PATH=bin", "", syscall.ENOENT},
		{"x/none", "PATH=bin", "x/none", nil},
		{"sh", "OTHER=1", "/bin/sh", nil},
	} {
		got, err := LookProgram(tt.name, cwd, []string{tt.path})
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q with %s: %q, %v; want %q, %v", tt.name, tt.path, got, err, tt.want, tt.err)
		}
	}
}
