package backendtest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/polltest"
)

// inspects checks that questions see the live state, leave no event in the log,
// and do not wait for a cell.
func inspects(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"input":"ask"}`)
	inspector, ok := b.(spool.Inspector)
	if kernels, wrapped := b.(Kernels); wrapped {
		inspector, ok = kernels.Backend.(spool.Inspector)
	}
	if !ok {
		t.Fatalf("%T is no Inspector", b)
	}
	ask := func(q inspect.Question) (inspect.Answer, error) {
		t.Helper()
		var a inspect.Answer
		data, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := inspector.Inspect(k.ctx, k.ID(), data)
		if err == nil {
			err = json.Unmarshal(answer, &a)
		}
		return a, err
	}
	completion := func(code string) inspect.Question {
		return inspect.Question{Op: inspect.Complete, Code: code, Cursor: len([]rune(code))}
	}
	// An interpreter that is too slow for its deadline is asked again: the machine
	// may be busy.
	answered := func(q inspect.Question) (a inspect.Answer, err error) {
		t.Helper()
		polltest.Until(t, "answered", func() bool {
			a, err = ask(q)
			return !errors.Is(err, spool.ErrBusy)
		})
		return a, err
	}
	k.run("class Ship:\n  \"A ship.\"\n  def anchor(self, depth): pass\nship = Ship()")
	before, err := k.Info(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := answered(completion("é; ship.anc")); err != nil || a.Start != 8 || !slices.Equal(a.Matches, []string{"anchor"}) {
		t.Errorf("complete an attribute: %+v, %v", a, err)
	}
	if a, err := answered(completion("%tim")); err != nil || !slices.Contains(a.Matches, "%timeit") {
		t.Errorf("complete a magic: %+v, %v", a, err)
	}
	if a, err := answered(inspect.Question{Op: inspect.Describe, Code: "ship.anchor", Source: true}); err != nil ||
		!strings.Contains(a.Text, "Signature: anchor(depth)") || !strings.Contains(a.Text, "def anchor(self, depth): pass") {
		t.Errorf("describe: %+v, %v", a, err)
	}
	if a, err := answered(inspect.Question{Op: inspect.Describe, Code: "nothing"}); err != nil || a.Text != "" {
		t.Errorf("describe nothing: %+v, %v", a, err)
	}
	if after, err := k.Info(k.ctx); err != nil || after.Last != before.Last {
		t.Errorf("the log grew from %d to %d, %v", before.Last, after.Last, err)
	}
	if _, err := ask(inspect.Question{Op: "guess"}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("an unknown question: %v", err)
	}
	if _, err := inspector.Inspect(k.ctx, "nosuchrun", json.RawMessage(`{}`)); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}

	turn := k.exec("input()") // runs until it is answered
	var seq spool.Seq
	for e, err := range turn.Events(k.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindAsk {
			seq = e.Seq
			break
		}
	}
	if _, err := ask(completion("ship.")); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("while a cell runs: %v", err)
	}
	if err := k.Reply(k.ctx, seq, "x"); err != nil {
		t.Fatal(err)
	}
	k.await(turn)

	// A question that does not end is interrupted, and the next cell runs.
	k.run("class Slow:\n  def __dir__(self):\n    while True: pass\nslow = Slow()")
	if _, err := ask(completion("slow.")); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("an object that hangs: %v", err)
	}
	if c := k.run("6 * 7"); c.result != "42" {
		t.Errorf("a cell after that: %+v", c)
	}
}
