package sdk

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/servertest"
)

// frontEnds are packages with front ends of Jupyter, and its suite for kernels.
var frontEnds = []string{"jupyter_kernel_test==0.7.0", "nbclient==0.11.0", "papermill==2.7.0"}

// jupyterTest is a front end with the kernel of Spool.
type jupyterTest struct {
	python string
	env    []string
	dir    string // of the test
}

// newJupyter installs the kernel where only this test sees it.
func newJupyter(t *testing.T) *jupyterTest {
	t.Helper()
	return newJupyterIn(t, frontEnds, "jupyter_kernel_test, nbclient, papermill")
}

// newJupyterIn is [newJupyter] with these packages, which provide these modules.
func newJupyterIn(t *testing.T, packages []string, modules string) *jupyterTest {
	t.Helper()
	python, err := pytest.Environment(packages, modules)
	if err != nil {
		t.Fatal(err)
	}
	j := &jupyterTest{python: python, dir: t.TempDir()}
	j.env = []string{
		"JUPYTER_DATA_DIR=" + filepath.Join(j.dir, "data"), "JUPYTER_RUNTIME_DIR=" + filepath.Join(j.dir, "runtime"),
		"JUPYTER_CONFIG_DIR=" + filepath.Join(j.dir, "config"), "IPYTHONDIR=" + filepath.Join(j.dir, "ipython"), "PYTHONDONTWRITEBYTECODE=1",
	}
	run(t, "", j.env, servertest.Binary(t), "jupyter", "install", "--name", "spool-test", "--state", servertest.StateDir(t), "--python", pytest.Python(t))
	return j
}

// TestJupyter has the kernel pass the public suite for kernels.
func TestJupyter(t *testing.T) {
	j := newJupyter(t)
	out := run(t, j.dir, j.env, j.python, absolute(t, "testdata/jupyter/suite.py"))
	if !strings.HasSuffix(out, "\nOK\n") { // none was skipped
		t.Errorf("the suite:\n%s", out)
	}
}

// output is one of a cell in a notebook.
type output struct {
	Kind string            `json:"output_type"`
	Name string            `json:"name"`
	Text string            `json:"text"`
	Data map[string]string `json:"data"`
}

// joined returns outputs in which text of a stream is one: how many pieces it comes in is
// a matter of time.
func joined(list []output) (out []output) {
	for _, o := range list {
		if n := len(out); n > 0 && o.Kind == "stream" && out[n-1].Kind == "stream" && out[n-1].Name == o.Name {
			out[n-1].Text += o.Text
			continue
		}
		out = append(out, o)
	}
	return out
}

// ran returns which cells of the notebook ran.
func (j *jupyterTest) ran(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(j.dir, "ran"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

// killInTheMiddle starts a front end that runs the notebook, kills it with all that it
// started while the second cell runs, and lets the cell write with nobody there.
func (j *jupyterTest) killInTheMiddle(t *testing.T, env []string, argv ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(j.dir, "log")) // the kernel holds it open
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.SysProcAttr = j.dir, append(os.Environ(), env...), log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the second cell", func() bool { return j.ran(t) == "12" })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := os.WriteFile(filepath.Join(j.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the end of the second cell", func() bool { return j.ran(t) == "12-" })
}

// cellOutputs are the outputs of the cells of the notebook.
func cellOutputs() [][]output {
	var ticks strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&ticks, "tick", i)
	}
	result := func(text string) output {
		return output{Kind: "execute_result", Data: map[string]string{"text/plain": text}}
	}
	return [][]output{
		{{Kind: "stream", Name: "stdout", Text: "one\n"}},
		{{Kind: "stream", Name: "stdout", Text: "before\n" + ticks.String()}, {Kind: "stream", Name: "stderr", Text: "after\n"}, result("41")},
		{result("42")},
	}
}

// TestNotebookOutlivesItsFrontEnd kills nbclient and papermill in the middle of a cell. What
// the cell writes then, with nobody there, is in the notebook of the next one, and no cell
// ran twice.
func TestNotebookOutlivesItsFrontEnd(t *testing.T) {
	for _, program := range []string{"nbclient", "papermill"} {
		t.Run(program, func(t *testing.T) {
			j := newJupyter(t)
			env := append(j.env, "SPOOL_JUPYTER_SESSION=nightly")
			argv := []string{j.python, absolute(t, "testdata/jupyter/notebook.py"), program, "spool-test"}
			j.killInTheMiddle(t, env, argv...)
			out := run(t, j.dir, env, argv...)
			var got [][]output
			if err := json.Unmarshal([]byte(out[strings.LastIndex(out, "\n")+1:]), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for i := range got {
				got[i] = joined(got[i])
			}
			if diff := cmp.Diff(cellOutputs(), got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if j.ran(t) != "12-3" {
				t.Errorf("the cells ran as %q", j.ran(t))
			}
			if program != "nbclient" {
				return
			}
			// The second front end has shut the kernel down: another one begins anew.
			run(t, j.dir, env, argv...)
			if want := "12-312-3"; j.ran(t) != want {
				t.Errorf("the cells ran as %q, want %q", j.ran(t), want)
			}
		})
	}
}
