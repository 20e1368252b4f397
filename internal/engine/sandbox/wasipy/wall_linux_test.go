//go:build amd64 || arm64

package wasipy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/skiptest"
)

// A process with everything that a worker has, and that a script has broken out of its
// interpreter into, cannot leave the worker's cell, by any mechanism.
func TestWorkerCannotEscape(t *testing.T) {
	all := isolate.NewSet(isolate.Writes, isolate.Protects, isolate.Reads, isolate.NoNetwork, isolate.Apart, isolate.Kills, isolate.Processes, isolate.Narrow)
	for mechanism, without := range map[string][]string{
		isolate.Namespaces: nil,
		isolate.Landlock:   {isolate.Namespaces},
		isolate.Filter:     {isolate.Namespaces, isolate.Landlock},
	} {
		t.Run(mechanism, func(t *testing.T) {
			o := cellOptions(Config{Worker: BuiltWorker}, t.TempDir())
			o.Name, o.Without = "", without // no earlier proof
			cell := isolate.NewCell(o)
			defer cell.Close()
			p, err := cell.Proof(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p.Mechanism != mechanism {
				skiptest.Missing(t, "the mechanism is %s", p.Mechanism)
			}
			want := all
			if mechanism == isolate.Namespaces {
				want = want.With(isolate.Survives, isolate.Rootless)
			}
			if missing := want.Without(p.Has); len(missing) > 0 {
				t.Errorf("lacks %s: %v", missing, p.Why)
			}
			if p.Has.Has(isolate.Memory) || p.Has.Has(isolate.Processor) || p.Has.Has(isolate.Survives) != (mechanism == isolate.Namespaces) {
				t.Errorf("it claims %s", p.Has)
			}
		})
	}
}

// The wall of workers stands without what they give up themselves: a worker reads its
// own program and compiled code, and nothing else.
func TestWorkersRunInTheirCell(t *testing.T) {
	b, pl := testPool(t, 1)
	c := openTest(t, b)
	run := func() guest.Result {
		t.Helper()
		res, err := c.Run(t.Context(), guest.Script{Code: "1"}, quietHost{})
		if err != nil || res.ExitCode != 0 && !res.Lost {
			t.Fatalf("%+v %v", res, err)
		}
		return res
	}
	run()
	p, err := pl.p.cell.Proof(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.Mechanism != isolate.Namespaces {
		skiptest.Missing(t, "the mechanism is %s", p.Mechanism)
	}
	pl.mu.Lock()
	w := pl.workers[0]
	pl.mu.Unlock()
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		here, err1 := os.Readlink("/proc/self/ns/" + name)
		there, err2 := os.Readlink(filepath.Join("/proc", strconv.Itoa(w.proc.Pid), "ns", name))
		if err1 != nil || err2 != nil || here == there {
			t.Errorf("namespace %s: %q and %q, %v, %v", name, here, there, err1, err2)
		}
	}
	// The cell is put up again if it was broken down from outside.
	for _, pid := range firstProcesses(t, w.proc.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-w.waited
	if run(); run().ExitCode != 0 { // the first has lost its interpreter
		t.Error("there is no other worker")
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if slices.Contains(pl.workers, w) {
		t.Error("the worker is still there")
	}
}

// firstProcesses returns the child of this process that is the first of the namespaces
// of another one.
func firstProcesses(t *testing.T, of int) (list []int) {
	t.Helper()
	namespace := func(pid string) string {
		name, _ := os.Readlink(filepath.Join("/proc", pid, "ns", "pid")) // it may have ended
		return name
	}
	dirs, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dirs {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(pid); err == nil && n != of && namespace(pid) == namespace(strconv.Itoa(of)) {
				list = append(list, n)
			}
		}
	}
	if len(list) != 1 {
		t.Fatalf("first processes %v", list)
	}
	return list
}
