package kernel

import (
	"runtime"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// An engine that is closed while a zygote is being started waits for neither its
// imports nor their time limit.
func TestCloseWhileAZygoteStarts(t *testing.T) {
	t.Parallel()
	for range 10 {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, _, err := e.makeLaunchSpec(&spool.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := candidates("", l.cwd, l.env)
		if err != nil || len(list) == 0 {
			t.Fatalf("candidates: %v, %v", list, err)
		}
		z := e.makeZygote(list[0], l)
		for started := false; !started; runtime.Gosched() {
			z.mu.Lock()
			started = z.sock != nil
			z.mu.Unlock()
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Runs whose environments differ only by the id of the run have one zygote, and
// each has its own id.
func TestRunsShareAZygote(t *testing.T) {
	t.Parallel()
	e := open(t)
	for _, id := range []spool.RunID{"first", "second"} {
		spec := spool.Spec{ID: id, Env: map[string]string{"MY_RUN": string(id)}}
		r := start(t, e, python.KernelConfig{Zygote: python.ZygoteWait}, spec)
		r.want("import os, subprocess; os.environ['MY_RUN'], subprocess.check_output(['sh', '-c', 'echo $MY_RUN'])",
			"('"+string(id)+"', b'"+string(id)+"\\n')")
		r.end()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.zygotes); n != 1 {
		t.Errorf("%d zygotes", n)
	}
}
