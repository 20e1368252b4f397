package backendtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// running returns the processes whose command line contains mark.
func running(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.Contains(b, []byte(mark)) { // a zombie has no command line
			found = append(found, f+" "+string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))))
		}
	}
	return found
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
}
