package codextest

import (
	"os/exec"
	"strings"
	"testing"
)

func TestBinary(t *testing.T) {
	out, err := exec.Command(Binary(t), "--version").Output()
	if want := "codex-cli " + Version; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("got %q, %v, want %s", out, err, want)
	}
}
