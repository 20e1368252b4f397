//go:build lab

// JupyterLab is large, and slow on a busy machine: "make torture" runs this.

package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLabOutlivesItsServer kills JupyterLab, page and server, in the middle of a cell. The
// notebook that is opened in the next one has the same kernel, and what the cell wrote
// with nobody there.
func TestLabOutlivesItsServer(t *testing.T) {
	j := newJupyterIn(t, []string{"jupyterlab==4.6.6", "websocket-client==1.9.2"}, "jupyterlab, websocket")
	cells, err := exec.Command(j.python, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import cells; print(*cells.CELLS, sep='\\0', end='')", absolute(t, "testdata/jupyter")).Output()
	if err != nil {
		t.Fatal(err)
	}
	code := strings.Split(string(cells), "\x00")
	lab := []string{j.python, absolute(t, "testdata/jupyter/lab.py"), "spool-test"}
	j.killInTheMiddle(t, j.env, append(lab, code[:2]...)...)

	cmd := exec.CommandContext(t.Context(), lab[0], append(lab[1:], "%outputs", code[2])...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = j.dir, append(os.Environ(), j.env...), &stderr, time.Second
	out, err := cmd.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var got []output
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got = joined(got)
		if i == 1 { // the first cell that is executed says what is behind it
			if len(got) == 0 || got[0].Name != "stderr" || !strings.Contains(got[0].Text, "which was here before") {
				t.Errorf("the notebook has %+v", got)
			}
			got = got[min(1, len(got)):]
		}
		if diff := cmp.Diff(cellOutputs()[i+1], got); diff != "" {
			t.Errorf("outputs of cell %d (-want +got):\n%s", i+2, diff)
		}
	}
	if j.ran(t) != "12-3" {
		t.Errorf("the cells ran as %q", j.ran(t))
	}
}
