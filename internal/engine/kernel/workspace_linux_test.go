package kernel

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/workspace"
	"github.com/spool-run/spool/python"
)

// openHost returns a host that runs kernels with a state directory.
func openHost(t *testing.T, state string) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: state, Engines: map[string]host.NewEngine{
		python.EngineKernel: func(owner string) (engine.Engine, error) { return New(Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), workspace.Remove(filepath.Join(state, "workspaces"))); err != nil {
			t.Error(err)
		}
	})
	return h
}

// kernelSpec is the spec of a kernel in a directory with a workspace.
func kernelSpec(t *testing.T, base, kind string, i *spool.Isolation) spool.Spec {
	t.Helper()
	config, err := json.Marshal(python.KernelConfig{Interpreter: testPython(t)})
	if err != nil {
		t.Fatal(err)
	}
	return spool.Spec{Engine: python.EngineKernel, Cwd: base, Config: config, Isolation: i, Workspace: &spool.Workspace{Kind: kind}}
}

// startWork starts a kernel with a workspace, or skips the test on a machine without.
func startWork(t *testing.T, h *host.Host, spec spool.Spec) *spool.Run {
	t.Helper()
	r, err := spool.Start(t.Context(), h, spec)
	if errors.Is(err, spool.ErrUnsupported) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cellIn runs a cell and returns its outcome.
func cellIn(t *testing.T, r *spool.Run, code string) spool.Done {
	t.Helper()
	turn, err := r.Exec(t.Context(), "", spool.Cell{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	d, err := turn.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustRun(t *testing.T, r *spool.Run, code string) {
	t.Helper()
	if d := cellIn(t, r, code); d.Outcome != spool.TurnOK {
		t.Fatalf("%q: %+v", code, d)
	}
}

// awaitNotice waits for a notice with that code.
func awaitNotice(t *testing.T, r *spool.Run, code string) {
	t.Helper()
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == code {
			return
		}
	}
	t.Fatalf("the log has no notice %q", code)
}

// endWork stops a run and returns the texts of its notices about changes.
func endWork(t *testing.T, r *spool.Run) []string {
	t.Helper()
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var n spool.Notice
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == workspace.NoticeChanges {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// names returns the changes of a run as text.
func names(t *testing.T, page spool.ChangePage) string {
	t.Helper()
	var b strings.Builder
	for _, c := range page.Changes {
		b.WriteString(c.Op[:1] + c.Path)
		if c.Conflict != "" {
			b.WriteString("!")
		}
		b.WriteString(" ")
	}
	return b.String()
}

// Kernels work on views of one directory, which a new interpreter of a run sees as the
// one before it left it. The changes of the first are applied, and those of the second
// conflict, so that none of them is made.
func TestWorkspacesOfKernels(t *testing.T) {
	for name, i := range map[string]*spool.Isolation{"none": {Profile: "none"}, "isolated": {Profile: "workspace-write"}} {
		t.Run(name, func(t *testing.T) {
			base, h := t.TempDir(), openHost(t, t.TempDir())
			if err := os.WriteFile(filepath.Join(base, "a"), []byte("before"), 0o644); err != nil {
				t.Fatal(err)
			}
			one, two := startWork(t, h, kernelSpec(t, base, workspace.Overlay, i)), startWork(t, h, kernelSpec(t, base, workspace.Overlay, i))
			mustRun(t, one, "open('a', 'w').write('one'); open('new', 'w').write('one')")
			mustRun(t, two, "import os\nassert os.listdir() == ['a'] and open('a').read() == 'before'\nopen('a', 'w').write('two'); open('other', 'w').write('two')")
			if err := one.Control(t.Context(), spool.Control{Op: spool.ControlRestart}); err != nil {
				t.Fatal(err)
			}
			awaitNotice(t, one, NoticeRestarted)
			mustRun(t, one, "assert open('a').read() == 'one'\nopen('new', 'w').write('again')")
			if d := cellIn(t, one, "import os\nos.kill(os.getpid(), 9)"); d.Outcome != spool.TurnCrashed {
				t.Errorf("crash: %+v", d)
			}
			mustRun(t, one, "assert open('new').read() == 'again'")
			if name == "isolated" {
				if d := cellIn(t, one, "open('/spool-isolate-test', 'w')"); d.Outcome != spool.TurnError {
					t.Errorf("it wrote outside: %+v", d)
				}
			}
			if b, err := os.ReadFile(filepath.Join(base, "a")); err != nil || string(b) != "before" {
				t.Errorf("the directory has %q, %v", b, err)
			}
			if _, err := h.Apply(t.Context(), one.ID(), nil, false); !errors.Is(err, spool.ErrBusy) {
				t.Errorf("apply while it runs: %v", err)
			}
			for _, r := range []*spool.Run{one, two} {
				if got := endWork(t, r); len(got) != 1 || got[0] != "the run changed its workspace: 1 added, 1 modified, 0 deleted" {
					t.Errorf("notices %q", got)
				}
			}
			if changes, err := h.Apply(t.Context(), one.ID(), nil, false); err != nil || names(t, changes) != "ma anew " {
				t.Errorf("apply: %q, %v", names(t, changes), err)
			}
			if changes, err := h.Apply(t.Context(), two.ID(), nil, false); !errors.Is(err, spool.ErrExists) || names(t, changes) != "ma! aother " {
				t.Errorf("apply of the second: %q, %v", names(t, changes), err)
			}
			if _, err := os.Stat(filepath.Join(base, "other")); err == nil {
				t.Error("the second was applied in part")
			}
		})
	}
}

// Where there is no overlay, a kernel is refused one, or has a snapshot if it takes one.
func TestKernelWithoutOverlay(t *testing.T) {
	base := t.TempDir()
	h := openHost(t, filepath.Join(base, "state")) // an overlay of a directory with the state is refused
	var se *spool.StartError
	if _, err := spool.Start(t.Context(), h, kernelSpec(t, base, workspace.Overlay, nil)); !errors.As(err, &se) || se.Reason != engine.StartUnsupported || !strings.Contains(se.Hint, "snapshot") {
		t.Errorf("overlay: %v", err)
	}
	r := startWork(t, h, kernelSpec(t, base, workspace.Auto, nil))
	mustRun(t, r, "open('direct', 'w').write('x')")
	if got := endWork(t, r); len(got) != 1 || got[0] != "the run changed its workspace: 1 added, 0 modified, 0 deleted" {
		t.Errorf("notices %q", got)
	}
	info, err := r.Info(t.Context())
	if err != nil || info.Workspace == nil || info.Workspace.Kind != workspace.Snapshot || info.Workspace.Reason == "" {
		t.Errorf("%+v, %v", info.Workspace, err)
	}
	if err := h.Discard(t.Context(), r.ID()); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("discard: %v", err)
	}
	if _, err := os.Stat(filepath.Join(base, "direct")); err != nil {
		t.Error(err)
	}
}

// A live run with an overlay is not copied, and a copy has no workspace.
func TestForksHaveNoWorkspace(t *testing.T) {
	h := openHost(t, t.TempDir())
	r := startWork(t, h, kernelSpec(t, t.TempDir(), workspace.Overlay, nil))
	for _, kind := range []string{"", workspace.Snapshot} {
		spec := kernelSpec(t, t.TempDir(), kind, nil)
		if kind == "" {
			spec.Workspace = nil
		}
		var err error
		if spec.Config, err = json.Marshal(python.KernelConfig{Fork: r.ID()}); err != nil {
			t.Fatal(err)
		}
		if _, err := spool.Start(t.Context(), h, spec); err == nil || !strings.Contains(err.Error(), "it works on an overlay") && !strings.Contains(err.Error(), "cannot have a workspace") {
			t.Errorf("fork with workspace %q: %v", kind, err)
		}
	}
}
