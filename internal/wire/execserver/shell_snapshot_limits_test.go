package execserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

func TestShellSnapshotsAreLimited(t *testing.T) {
	var s shellSnapshots
	first, second := s.lookup("0"), s.lookup("1")
	for i := 2; i < maxSnapshots; i++ {
		s.lookup(fmt.Sprint(i))
	}
	if s.lookup("0") != first {
		t.Error("a snapshot is forgotten too early")
	}
	s.lookup("new")
	if s.lookup("0") != first || s.lookup("1") == second || len(s.known) != maxSnapshots {
		t.Errorf("not the snapshot that was unused for longest is forgotten; %d are known", len(s.known))
	}
}

func TestShellSnapshotAttempts(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("printf x >>$HOME/captures\nexit 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s shellSnapshots
	r := &snapshotRequest{Scope: "s", Shell: snapshotShell{Name: "bash", Path: "/bin/bash"}}
	for i := range maxSnapshotAttempts + 1 {
		spec := snapshotSpec(home)
		if err := s.apply(t.Context(), r, &spec); (err != nil) != (i < maxSnapshotAttempts) {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if spec.Argv[1] != "-lc" {
			t.Errorf("the shell starts as %q", spec.Argv)
		}
		s.known[0].retry = time.Time{} // the backoff has passed
	}
	if b, _ := os.ReadFile(filepath.Join(home, "captures")); string(b) != "xxx" {
		t.Errorf("%d captures", len(b))
	}
}

func TestShellSnapshotOfEndlessProfile(t *testing.T) {
	for script, want := range map[string]string{
		"yes":                       "the startup files print more than",
		"read -r _ <>$HOME/nothing": "the startup files take longer than",
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("mkfifo $HOME/nothing\n"+script+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		spec := snapshotSpec(home)
		err := new(shellSnapshots).apply(ctx, &snapshotRequest{Scope: "s", Shell: snapshotShell{Name: "bash", Path: "/bin/bash"}}, &spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", script, err, want)
		}
	}
}

func snapshotSpec(home string) spool.Spec {
	return spool.Spec{
		Argv: []string{"/bin/bash", "-lc", "true"}, Cwd: home,
		Env: map[string]string{"HOME": home, "PATH": "/usr/bin:/bin"},
	}
}
