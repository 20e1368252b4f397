package access_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/audit"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// writing is an engine whose runs begin with what it writes and then wait for
// their end.
type writing func(spec *spool.Spec, out engine.Sink) error

func (w writing) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if err := w(&spec, out); err != nil {
		return nil, err
	}
	spec.Config = nil
	s, err := audit.Engine{}.Start(ctx, spec, out)
	return turning{s}, err
}

// turning is a session that takes cells and does nothing with them.
type turning struct{ engine.Session }

func (t turning) Takes(in spool.Input) error {
	if in.Kind == spool.InputCell {
		return nil
	}
	return t.Session.Takes(in)
}

func (t turning) Send(ctx context.Context, in spool.Input) error {
	if in.Kind == spool.InputCell {
		return nil
	}
	return t.Session.Send(ctx, in)
}

func openWriting(t *testing.T, name string, w writing) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		name: func(string) (engine.Engine, error) { return w, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func appendJSON(out engine.Sink, kind spool.Kind, data string) error {
	_, err := out.Append(spool.Event{Kind: kind, Data: []byte(data)})
	return err
}

// Blobs and payloads of events count against the disk quota, a blob of two runs
// once. Beyond the quota neither a run nor a turn begins.
func TestDiskQuotaCountsBlobs(t *testing.T) {
	const size = 40_000
	h := openWriting(t, python.EngineKernel, func(spec *spool.Spec, out engine.Sink) error {
		blob, err := out.PutBlob("image/png", strings.NewReader(strings.Repeat(spec.Labels["content"], size)))
		if err != nil {
			return err
		}
		data := `{"data":{"image/png":{"blob":"` + string(blob.Digest) + `","size_bytes":40000}}}`
		return errors.Join(appendJSON(out, python.KindDisplay, data), appendJSON(out, python.KindDisplay, data))
	})
	guard := access.NewGuard(h, nil)
	of := func(limit int64) spool.Backend {
		return guard.Backend(&access.Subject{Name: "alice", Scopes: access.DefaultScopes(), Quotas: access.Quotas{DiskBytes: limit}}, "")
	}
	kernel := func(content string) spool.Spec {
		return spool.Spec{Engine: python.EngineKernel, Labels: map[string]string{"content": content}}
	}
	b := of(3 * size)
	r := start(t, b, kernel("a"))
	if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputCell, Data: []byte(`{"code":"1"}`)}); err != nil {
		t.Errorf("a turn within the quota: %v", err)
	}
	start(t, b, kernel("a")) // the same blob
	start(t, b, kernel("b"))
	for limit, ok := range map[int64]bool{2 * size: false, 2*size + 10_000: true} {
		// Another server counts anew.
		guard = access.NewGuard(h, nil)
		b := of(limit)
		_, err := b.Start(t.Context(), kernel("b"))
		_, turnErr := b.Send(t.Context(), r.ID(), spool.Input{Kind: spool.InputCell, Data: []byte(`{"code":"1"}`)})
		for _, err := range []error{err, turnErr} {
			if ok && err != nil || !ok && (!errors.Is(err, spool.ErrDenied) || !strings.Contains(err.Error(), "bytes of output and blobs on disk")) {
				t.Errorf("quota of %d: %v", limit, err)
			}
		}
		if err := b.Control(t.Context(), r.ID(), spool.Control{Op: spool.ControlInterrupt}); errors.Is(err, spool.ErrDenied) {
			t.Errorf("a control: %v", err)
		}
	}
}

// A token that is restricted to directories mounts none of the others in a
// sandbox, and takes neither a distribution nor wheels from them.
func TestScopesRestrictMounts(t *testing.T) {
	h := openWriting(t, python.EngineSandbox, func(*spool.Spec, engine.Sink) error { return nil })
	dir := t.TempDir()
	mine, other := filepath.Join(dir, "mine"), filepath.Join(dir, "other")
	for _, d := range []string{filepath.Join(mine, "below"), other} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(mine, "link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	mount := func(host string) python.SandboxConfig {
		return python.SandboxConfig{Mounts: []python.Mount{{Host: mine, Guest: "/a"}, {Host: host, Guest: "/b", Mode: python.MountReadWrite}}}
	}
	start := access.StartOf(python.EngineSandbox)
	for _, tt := range []struct {
		name    string
		scopes  access.Scopes
		config  python.SandboxConfig
		allowed bool
	}{
		{"no mount", access.Scopes{start}, python.SandboxConfig{}, true},
		{"no directory", access.Scopes{start}, mount(mine), false},
		{"below", access.Scopes{start, access.FilesOf(mine)}, mount(filepath.Join(mine, "below")), true},
		{"beside", access.Scopes{start, access.FilesOf(mine)}, mount(other), false},
		{"above", access.Scopes{start, access.FilesOf(mine)}, mount(dir), false},
		{"dots", access.Scopes{start, access.FilesOf(mine)}, mount(mine + "/../other"), false},
		{"symbolic link", access.Scopes{start, access.FilesOf(mine)}, mount(link), false},
		{"relative", access.Scopes{start, access.FilesOf(mine)}, mount("mine"), false},
		{"distribution", access.Scopes{start, access.FilesOf(mine)}, python.SandboxConfig{Dist: other}, false},
		{"wheels", access.Scopes{start, access.FilesOf(mine)}, python.SandboxConfig{Wheels: other}, false},
		{"all", access.Scopes{start, access.FilesOf("/")}, mount(other), true},
		{"admin", access.Scopes{access.Admin}, mount(other), true},
	} {
		b := access.NewGuard(h, nil).Backend(&access.Subject{Name: "alice", Scopes: tt.scopes}, "")
		_, err := b.Start(t.Context(), tt.config.Spec())
		if tt.allowed && err != nil || !tt.allowed && !errors.Is(err, spool.ErrDenied) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A token that is restricted to directories resumes only the sessions that runs of
// its own subject had.
func TestScopesRestrictResume(t *testing.T) {
	h := openWriting(t, agent.Engine, func(spec *spool.Spec, out engine.Sink) error {
		return errors.Join(
			appendJSON(out, agent.KindMessage, `{"text":"session-x","resume":"session-x"}`), // what an agent says proves nothing
			appendJSON(out, spool.KindStarted, `{"agent":"codex","resume":"session-`+spec.Name+`"}`))
	})
	guard := access.NewGuard(h, nil)
	of := func(name string, extra ...access.Scope) spool.Backend {
		return guard.Backend(&access.Subject{Name: name, Scopes: append(access.DefaultScopes(), extra...)}, "")
	}
	for _, name := range []string{"alice", "bob"} {
		spec := agent.Config{Agent: agent.Codex}.Spec()
		spec.Name = name
		start(t, of(name), spec)
	}
	for _, tt := range []struct {
		who     spool.Backend
		session string
		allowed bool
	}{
		{of("alice"), "session-alice", true},
		{of("alice"), "session-bob", false},
		{of("alice"), "session-x", false},
		{of("alice", access.FilesOf(t.TempDir())), "session-bob", false},
		{of("alice", access.FilesOf("/")), "session-bob", true},
		{of("carol"), "session-alice", false},
		{of("root", access.Admin), "session-bob", true},
	} {
		_, err := tt.who.Start(t.Context(), agent.Config{Agent: agent.Codex, Resume: tt.session}.Spec())
		if tt.allowed && err != nil || !tt.allowed && !errors.Is(err, spool.ErrDenied) {
			t.Errorf("%s: %v", tt.session, err)
		}
	}
}
