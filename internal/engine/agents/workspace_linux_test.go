package agents

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/workspace"
)

// openHost returns a host that runs agents with a state directory.
func openHost(t *testing.T, state string) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: state, Engines: map[string]host.NewEngine{
		agent.Engine: func(owner string) (engine.Engine, error) { return New(Options{Owner: owner, Dir: t.TempDir()}) },
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

// startWork starts an agent in the directory of its program with a workspace, or skips
// the test on a machine without.
func startWork(t *testing.T, h *host.Host, c agent.Config, kind string, i *spool.Isolation) *spool.Run {
	t.Helper()
	r, err := spool.Start(t.Context(), h, spool.Spec{Engine: agent.Engine, Config: mustJSON(t, c), Cwd: filepath.Dir(c.Program), Isolation: i, Workspace: &spool.Workspace{Kind: kind},
		Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}})
	if errors.Is(err, spool.ErrUnsupported) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// turnIn gives a prompt, waits for the end of the turn, and returns its seq.
func turnIn(t *testing.T, r *spool.Run) spool.Seq {
	t.Helper()
	turn, err := r.Prompt(t.Context(), "", spool.Prompt{Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := turn.Wait(t.Context())
	if err != nil || d.Outcome != spool.TurnOK {
		t.Fatalf("done is %+v, %v", d, err)
	}
	return turn.Seq()
}

// noted is a notice about changes with its turn.
type noted struct {
	turn spool.Seq
	text string
}

// endWork stops a run and returns what its log says about changes, each before the end
// of its turn, and the codes of all notices.
func endWork(t *testing.T, r *spool.Run) (list []noted, codes []string) {
	t.Helper()
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	over := make(map[spool.Seq]bool)
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var n spool.Notice
		switch {
		case e.Kind == spool.KindDone:
			over[e.Turn] = true
		case e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil:
			codes = append(codes, n.Code)
			if n.Code != workspace.NoticeChanges {
				continue
			}
			list = append(list, noted{e.Turn, n.Text})
			if over[e.Turn] {
				t.Errorf("the notice of turn %d comes after its end", e.Turn)
			}
		}
	}
	return list, codes
}

// worker is an agent that counts its turns in a file. In the second one it leaves a
// process behind that writes without end, and in later ones it changes nothing.
const worker = `
n=$(cat turns 2>/dev/null || echo 0)
case $n in
0) echo 1 >turns ;;
1)
	echo 2 >turns.new
	mv turns.new turns
	(while :; do echo x >left; done) >/dev/null 2>&1 </dev/null &
	until test -e left; do :; done
	;;
esac
`

// Agents work on views of one directory. The log says at the end of each turn what the
// run has changed until then, if that is new, and what a turn left running does not
// write any more. The changes of one are applied, and those of the other conflict, so
// that none of them is made.
func TestWorkspacesOfAgents(t *testing.T) {
	for name, i := range map[string]*spool.Isolation{"plain": nil, "isolated": {Profile: "workspace-write"}} {
		t.Run(name, func(t *testing.T) {
			h := openHost(t, t.TempDir())
			c := quick(fakeCLI(t, worker+printLines(codexThread, codexSays("m", "hi"), codexOver)))
			c.Sandbox = "danger-full-access"
			base := filepath.Dir(c.Program)
			one, two := startWork(t, h, c, workspace.Overlay, i), startWork(t, h, c, workspace.Overlay, i)
			turns := []spool.Seq{turnIn(t, one), turnIn(t, one), turnIn(t, one)}
			turnIn(t, two)
			got, codes := endWork(t, one)
			if want := []noted{{turns[0], "the run changed its workspace: 1 added, 0 modified, 0 deleted"}, {turns[1], "the run changed its workspace: 2 added, 0 modified, 0 deleted"}}; !slices.Equal(got, want) {
				t.Errorf("notices %+v, want %+v", got, want)
			}
			if !slices.Contains(codes, talk.NoticeTreeKill) {
				t.Errorf("no notice about what the second turn left: %q", codes)
			}
			if got, _ := endWork(t, two); len(got) != 1 {
				t.Errorf("notices of the other run %+v", got)
			}
			if _, err := os.Stat(filepath.Join(base, "turns")); err == nil {
				t.Error("a turn wrote to the directory")
			}
			if changes, err := h.Apply(t.Context(), one.ID(), nil, false); err != nil || len(changes.Changes) != 2 {
				t.Errorf("apply: %+v, %v", changes, err)
			}
			if b, err := os.ReadFile(filepath.Join(base, "turns")); err != nil || string(b) != "2\n" {
				t.Errorf("the directory has %q, %v", b, err)
			}
			if changes, err := h.Apply(t.Context(), two.ID(), nil, false); !errors.Is(err, spool.ErrExists) || len(changes.Changes) != 1 || changes.Changes[0].Path != "turns" || changes.Changes[0].Conflict == "" {
				t.Errorf("apply of the other run: %+v, %v", changes, err)
			}
			if b, err := os.ReadFile(filepath.Join(base, "turns")); err != nil || string(b) != "2\n" {
				t.Errorf("after the conflict the directory has %q, %v", b, err)
			}
		})
	}
}

// Where there is no overlay, an agent is refused one, or has a snapshot if it takes one.
func TestAgentWithoutOverlay(t *testing.T) {
	c := quick(fakeCLI(t, "echo x >direct\n"+printLines(codexThread, codexSays("m", "hi"), codexOver)))
	base := filepath.Dir(c.Program)
	h := openHost(t, filepath.Join(base, "state")) // an overlay of a directory with the state is refused
	spec := spool.Spec{Engine: agent.Engine, Config: mustJSON(t, c), Cwd: base, Workspace: &spool.Workspace{Kind: workspace.Overlay}}
	var se *spool.StartError
	if _, err := spool.Start(t.Context(), h, spec); !errors.As(err, &se) || se.Reason != engine.StartUnsupported || !strings.Contains(se.Hint, "snapshot") {
		t.Errorf("overlay: %v", err)
	}
	r := startWork(t, h, c, workspace.Auto, nil)
	turn := turnIn(t, r)
	if got, _ := endWork(t, r); !slices.Equal(got, []noted{{turn, "the run changed its workspace: 1 added, 0 modified, 0 deleted"}}) {
		t.Errorf("notices %+v", got)
	}
	info, err := r.Info(t.Context())
	if err != nil || info.Workspace == nil || info.Workspace.Kind != workspace.Snapshot || info.Workspace.Reason == "" {
		t.Errorf("%+v, %v", info.Workspace, err)
	}
	if err := h.Discard(t.Context(), r.ID()); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("discard: %v", err)
	}
}
