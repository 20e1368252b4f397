package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/host"
	"github.com/spool-run/spool/host/backendtest"
)

// twoProcesses starts runs in one place and does all else from another, as two
// invocations on one state directory do.
type twoProcesses struct {
	*local
	owner *local
}

func (b twoProcesses) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	return b.owner.Start(ctx, spec)
}

func TestLocalAcrossProcesses(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) spool.Backend {
		dir := t.TempDir()
		return twoProcesses{openTest(t, dir, false), openTest(t, dir, true)}
	})
}

func openTest(t *testing.T, dir string, starts bool) *local {
	t.Helper()
	open := func() (*local, error) { return openLocal(host.Options{Dir: dir}, nil) }
	if starts {
		open = func() (*local, error) {
			return openServing(host.Options{Dir: dir, Engines: engines(spool.Limits{})}, nil)
		}
	}
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Whoever follows a run sees all of it, although the process that runs it
// leaves as soon as the run is over.
func TestFollowOutlivesOwner(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	reader := openTest(t, dir, false)
	owner, err := openServing(host.Options{Dir: dir, Engines: engines(spool.Limits{})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hold := filepath.Join(dir, "hold")
	script := "echo one; until [ -e " + hold + " ]; do sleep 0.01; done; echo two; exit 3"
	run, err := spool.Start(t.Context(), owner, spool.Spec{Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range spool.Attach(reader, run.ID()).Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Kind)+" "+string(e.Bytes))
		if len(got) == 1 { // the connection is there now
			if err := os.WriteFile(hold, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := owner.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := "output one\n|output two\n|exited |closed "; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

func TestSocket(t *testing.T) {
	for name, dir := range map[string]string{
		"short": "s",
		"long":  strings.Repeat("long/", 30),
	} {
		t.Run(name, func(t *testing.T) {
			base, err := os.MkdirTemp("", "s")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(base)
			l := openTest(t, filepath.Join(base, dir), true)
			path := l.socket.path
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("mode of the socket is %s", info.Mode())
			}
			parent, err := os.Stat(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			if parent.Mode().Perm() != 0o700 {
				t.Errorf("mode of its directory is %s", parent.Mode())
			}
			if len(path) > maxSocketPath {
				t.Errorf("path of the socket has %d bytes", len(path))
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after Close, the socket is there: %v", err)
			}
			if _, err := os.Stat(filepath.Dir(path)); name == "long" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after Close, its private directory is there: %v", err)
			}
		})
	}
}
