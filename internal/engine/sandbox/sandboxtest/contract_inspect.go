package sandboxtest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

// answered asks a question that has an answer. A busy machine may need longer for it
// than an interpreter has: then it is asked again.
func (b *box) answered(q inspect.Question) (a inspect.Answer, err error) {
	b.t.Helper()
	polltest.Holds(func() bool {
		a, err = b.inspect(q)
		return !errors.Is(err, spool.ErrBusy)
	})
	return a, err
}

// inspect asks the run a question.
func (b *box) inspect(q inspect.Question) (inspect.Answer, error) {
	b.t.Helper()
	var a inspect.Answer
	data, err := json.Marshal(q)
	if err != nil {
		b.t.Fatal(err)
	}
	answer, err := b.host.Inspect(b.ctx, b.run.ID(), data)
	if err == nil {
		err = json.Unmarshal(answer, &a)
	}
	return a, err
}

func (b *box) complete(code string) (inspect.Answer, error) {
	b.t.Helper()
	return b.inspect(completion(code))
}

// completion is the question how a code can go on.
func completion(code string) inspect.Question {
	return inspect.Question{Op: inspect.Complete, Code: code, Cursor: len([]rune(code))}
}

// inspects checks that questions see the live state, leave no event in the log and
// no name in the namespace, and do not wait for a cell.
func inspects(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Offer = []string{spool.AskInput} })
	b.prints("class Ship:\n  \"A ship.\"\n  def anchor(self, depth): pass\nship = Ship()\nnames = set(dir())\nprint('ok')", "ok\n")
	before, err := b.run.Info(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := b.answered(completion("é; ship.anc")); err != nil || a.Start != 8 || !slices.Equal(a.Matches, []string{"anchor"}) {
		t.Errorf("complete an attribute: %+v, %v", a, err)
	}
	if a, err := b.answered(inspect.Question{Op: inspect.Describe, Code: "ship.anchor", Source: true}); err != nil ||
		!strings.Contains(a.Text, "Signature: anchor(depth)") || !strings.Contains(a.Text, "def anchor(self, depth): pass") {
		t.Errorf("describe: %+v, %v", a, err)
	}
	if a, err := b.answered(inspect.Question{Op: inspect.Describe, Code: "nothing"}); err != nil || a.Text != "" {
		t.Errorf("describe nothing: %+v, %v", a, err)
	}
	if after, err := b.run.Info(b.ctx); err != nil || after.Last != before.Last {
		t.Errorf("the log grew from %d to %d, %v", before.Last, after.Last, err)
	}
	b.prints("print(set(dir()) - names - {'names'})", "set()\n")
	if _, err := b.inspect(inspect.Question{Op: "guess"}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("an unknown question: %v", err)
	}

	turn := b.exec(spool.Cell{Code: "input()"}) // runs until it is answered
	ask := b.next(turn, turn.Seq(), func(e *spool.Event) bool { return e.Kind == spool.KindAsk })
	if _, err := b.complete("ship."); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("while a cell runs: %v", err)
	}
	if err := b.run.Reply(b.ctx, ask.Seq, "x"); err != nil {
		t.Fatal(err)
	}
	b.wait(turn)

	// A question that does not end is interrupted, and the state is kept.
	b.prints("class Slow:\n  def __dir__(self):\n    while True: pass\nslow = Slow()\nprint('ok')", "ok\n")
	if _, err := b.complete("slow."); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("an object that hangs: %v", err)
	}
	b.prints("print(type(ship).__name__)", "Ship\n")

	once := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = true })
	if _, err := once.complete("pri"); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("without state: %v", err)
	}
}

// keepsCells checks In, Out and _, which a prompt asks for.
func keepsCells(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	for _, code := range []string{"7 * 9", "x = _ + 1", "1/0"} {
		b.wait(b.exec(spool.Cell{Code: code, Keep: true}))
	}
	e := b.wait(b.exec(spool.Cell{Code: "print(In, Out, _1, x)", Keep: true}))
	if want := "['', '7 * 9', 'x = _ + 1', '1/0', 'print(In, Out, _1, x)'] {1: 63} 63 64\n"; e.stdout != want {
		t.Errorf("%q, want %q; %q", e.stdout, want, e.stderr)
	}
	b.prints("print(len(In))", "5\n") // it is not kept
}
