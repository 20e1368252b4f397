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
	"github.com/spool-run/spool/internal/fifotest"
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
	for _, tt := range []struct{ script, want string }{
		{"yes", "the startup files print more than 4194304 bytes"},
		{"sleep 1000", "context canceled"},
	} {
		home := t.TempDir()
		ready := fifotest.New(t, home, "ready")
		if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("echo >$HOME/ready\n"+tt.script+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() {
			spec := snapshotSpec(home)
			done <- new(shellSnapshots).apply(ctx, &snapshotRequest{Scope: "s", Shell: snapshotShell{Name: "bash", Path: "/bin/bash"}}, &spec)
		}()
		if err := ready.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if tt.script != "yes" {
			cancel()
		}
		if err := <-done; err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.script, err, tt.want)
		}
	}
}

func snapshotSpec(home string) spool.Spec {
	return spool.Spec{
		Argv: []string{"/bin/bash", "-lc", "true"}, Cwd: home,
		Env: map[string]string{"HOME": home, "PATH": "/usr/bin:/bin"},
	}
}
