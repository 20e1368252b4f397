package execserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// A capture that fails is repeated maxSnapshotAttempts times at most, and not
// within the backoff.
func TestShellSnapshotAttempts(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("printf x >>$HOME/captures\nexit 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s shellSnapshots
	r := &snapshotRequest{Scope: "s", Shell: snapshotShell{Name: "bash", Path: "/bin/bash"}}
	attempt := func() error {
		t.Helper()
		spec := snapshotSpec(home)
		err := s.apply(t.Context(), r, &spec)
		if spec.Argv[1] != "-lc" {
			t.Errorf("the shell starts as %q", spec.Argv)
		}
		return err
	}
	for i := range maxSnapshotAttempts + 1 {
		before := time.Now()
		if err := attempt(); (err != nil) != (i < maxSnapshotAttempts) {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if retry := s.known[0].retry; i < maxSnapshotAttempts && retry.Before(before.Add(snapshotBackoff)) {
			t.Errorf("attempt %d may be repeated after %v", i+1, retry.Sub(before))
		}
		s.known[0].retry = time.Now().Add(time.Hour)
		if err := attempt(); err != nil {
			t.Errorf("within the backoff after attempt %d: %v", i+1, err)
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

// The state that a shell prints has at most maxSnapshot bytes.
func TestShellSnapshotStateIsBounded(t *testing.T) {
	const mark, begin, end = "MARK", "\x00on\x00shopt -s nullglob\n\x00", "\x00A=b\x00"
	for n, want := range map[int]string{maxSnapshot: "", maxSnapshot + 1: "the state has more than 524288 bytes"} {
		state := strings.Repeat("#", n-len(begin)-len(end))
		s, got := new(shellSnapshot), ""
		if err := s.parse([]byte("hello"+mark+begin+state+end+mark), mark, nil); err != nil {
			got = err.Error()
		}
		if got != want || want == "" && (!strings.HasSuffix(s.state, state) || s.environment["A"] != "b") {
			t.Errorf("a state of %d bytes: %q, want %q", n, got, want)
		}
	}
}

// A variable carries at most maxSnapshotVariable bytes of the state, and whole
// characters.
func TestShellSnapshotVariablesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		state string
		want  []int // bytes of the variables
	}{
		{strings.Repeat("x", maxSnapshotVariable), []int{maxSnapshotVariable}},
		{strings.Repeat("x", maxSnapshotVariable+1), []int{maxSnapshotVariable, 1}},
		{strings.Repeat("x", maxSnapshotVariable-1) + "é", []int{maxSnapshotVariable - 1, 2}},
	} {
		spec := snapshotSpec(t.TempDir())
		(&shellSnapshot{state: tt.state, environment: map[string]string{}}).restore("bash", &spec)
		var got []int
		all := ""
		for {
			v, ok := spec.Env[fmt.Sprint(snapshotVariable, len(got))]
			if !ok {
				break
			}
			got, all = append(got, len(v)), all+v
		}
		if !slices.Equal(got, tt.want) || all != tt.state {
			t.Errorf("a state of %d bytes is in variables of %v, want %v", len(tt.state), got, tt.want)
		}
	}
}

// A shell whose startup files take longer than the timeout is killed.
func TestShellSnapshotHasADeadline(t *testing.T) {
	home := t.TempDir()
	spec := snapshotSpec(home)
	_, err := runCapture(t.Context(), &spec, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}, "sleep 1000", time.Millisecond)
	if err == nil || err.Error() != "the startup files take longer than 1ms" {
		t.Error(err)
	}
}
