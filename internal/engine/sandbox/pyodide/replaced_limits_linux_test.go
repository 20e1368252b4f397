//go:build amd64 || arm64

package pyodide_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

// hang is a replacement that never gets done.
const hang = `
export async function loadPyodide(options) {
  return {
    setStdin() {},
    async runPythonAsync(code) {
      console.log('ready ' + process.pid);
      if (code === 'busy') for (;;) {}
      await new Promise(() => setInterval(() => {}, 1000));
    },
  };
}`

func waitTimeoutCleansUp(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(nil)
	for _, code := range []string{"wait", "busy"} {
		limit, child := int64(1500), 0
		var turn *spool.Turn
		for ; child == 0; limit *= 2 { // until it runs before the time is up
			turn = l.exec(run, spool.Cell{Code: code, TimeoutMs: limit})
			if begun := l.follow(turn, isReady); begun.done.Outcome == "" {
				child = l.child(begun)
			}
		}
		limit /= 2
		e := l.follow(turn, nil)
		l.gone(child)
		if e.done.Outcome != spool.TurnTimeout || e.done.EndedBy != "timeout" || e.done.Error != fmt.Sprintf("timed out after %dms", limit) || e.done.LimitMs != limit {
			t.Errorf("%s: done %+v", code, e.done)
		}
	}
}

func usesDefaultTimeout(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.WallMs = 250 })
	if e := l.do(run, "wait"); e.done.EndedBy != "timeout" || e.done.LimitMs != 250 {
		t.Errorf("done %+v", e.done)
	}
}

func rpcTimesOut(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { globalThis.spoolHost.fsReadSync('/workspace/never.txt'); } };
}`)
	run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Offer, c.Limits.AskMs = []string{"fs.read"}, 50
	})
	for range 2 { // it ends the script and not the engine
		e := l.do(run, "read")
		if *e.done.ExitCode != 1 || !strings.Contains(e.stderr, "timed out after 50ms") {
			t.Errorf("done %+v, stderr %q", e.done, e.stderr)
		}
		var a spool.Ask
		for _, ev := range e.events {
			if ev.Kind == spool.KindAsk {
				if err := json.Unmarshal(ev.Data, &a); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a.Kind != "fs.read" || !sameJSON(a.Data, `{"path":"/workspace/never.txt"}`) {
			t.Errorf("asked %s %s", a.Kind, a.Data)
		}
	}
}

func killStopsInflight(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(nil)
	turn := l.exec(run, spool.Cell{Code: "busy"})
	child := l.child(l.follow(turn, isReady))
	if err := run.Kill(l.ctx); err != nil {
		t.Fatal(err)
	}
	o, err := run.Wait(l.ctx)
	if err != nil || o.Kind != spool.Exited || o.Code != guest.ExitKilled {
		t.Errorf("the run ended %v, %v", o, err)
	}
	if e := l.follow(turn, nil); e.done.EndedBy != "kill" {
		t.Errorf("done %+v", e.done)
	}
	l.gone(child)
}

// isReady ends the following of a turn of hang once it runs.
func isReady(_ *spool.Event, e *ended) bool { return strings.HasSuffix(e.stdout, "\n") }

// child returns the pid, on this machine, of the process that reported that it
// is ready with its pid in its namespace.
func (l *lab) child(e ended) int {
	l.t.Helper()
	inside, ok := strings.CutPrefix(strings.TrimSpace(e.stdout), "ready ")
	if !ok {
		l.t.Fatalf("it said %q", e.stdout)
	}
	found := 0
	for pid, parents := range processes(l.t) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		_, namespaced, _ := strings.Cut(string(status), "\nNSpid:")
		namespaced, _, _ = strings.Cut(namespaced, "\n")
		numbers := strings.Fields(namespaced)
		if len(numbers) < 2 || numbers[len(numbers)-1] != inside || !slices.ContainsFunc(parents, l.supervises) {
			continue
		}
		if found != 0 {
			l.t.Fatalf("both %d and %d are the child", found, pid)
		}
		found = pid
	}
	if found == 0 {
		l.t.Fatalf("no process is %s inside", inside)
	}
	return found
}

// supervises reports whether a process belongs to the distribution of this test.
func (l *lab) supervises(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(args), l.dist)
}

// processes returns the parents of each process of this machine.
func processes(t *testing.T) map[int][]int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := make(map[int]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(after); len(fields) > 1 {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	all := make(map[int][]int)
	for pid := range parent {
		for p := parent[pid]; p != 0; p = parent[p] {
			all[pid] = append(all[pid], p)
		}
	}
	return all
}

// gone waits until a process is gone.
func (l *lab) gone(pid int) {
	l.t.Helper()
	polltest.Until(l.t, fmt.Sprintf("the end of process %d", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") || strings.Contains(string(stat), ") X ")
	})
}
