package kernel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/inspect"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/python"
)

// answered asks a question that has an answer. A busy machine may need longer for it
// than an interpreter has: then it is asked again.
func (r *testRun) answered(q inspect.Question) (a inspect.Answer, err error) {
	r.t.Helper()
	polltest.Holds(func() bool {
		a, err = r.ask(q)
		return !errors.Is(err, spool.ErrBusy)
	})
	return a, err
}

// ask asks a live kernel a question.
func (r *testRun) ask(q inspect.Question) (a inspect.Answer, err error) {
	r.t.Helper()
	data, err := json.Marshal(q)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), enginetest.Patience)
	defer cancel()
	if data, err = r.Session.(engine.Inspector).Inspect(ctx, data); err == nil {
		err = json.Unmarshal(data, &a)
	}
	return a, err
}

// An answer has at most MaxMatches completions, and a question at most MaxCode
// bytes of code.
func TestInspectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, open(t), python.KernelConfig{})
	r.done(r.cell(fmt.Sprintf("for i in range(%d): globals()['name_%%d' %% i] = i", inspect.MaxMatches+100)))
	a, err := r.answered(inspect.Question{Op: inspect.Complete, Code: "name_", Cursor: 5})
	if err != nil || len(a.Matches) != inspect.MaxMatches {
		t.Errorf("%d matches, %v", len(a.Matches), err)
	}
	code := strings.Repeat("#", inspect.MaxCode-1)
	if _, err := r.answered(inspect.Question{Op: inspect.Complete, Code: code + "\n", Cursor: len(code) + 1}); err != nil {
		t.Errorf("a question of %d bytes: %v", inspect.MaxCode, err)
	}
	if _, err := r.ask(inspect.Question{Op: inspect.Complete, Code: code + "#\n"}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a longer one: %v", err)
	}
}

// A question that takes longer than inspectTimeout is interrupted, and the kernel
// goes on.
func TestInspectionHasADeadline(t *testing.T) {
	t.Parallel()
	r := start(t, open(t), python.KernelConfig{})
	r.done(r.cell("import time\nclass Slow:\n    def __dir__(self): time.sleep(1000)\nslow = Slow()"))
	begin := time.Now()
	if a, err := r.ask(inspect.Question{Op: inspect.Complete, Code: "slow.", Cursor: 5}); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("%+v, %v", a, err)
	}
	if took := time.Since(begin); took < inspectTimeout {
		t.Errorf("it ended after %v", took)
	}
	if d := r.done(r.cell("1")); d.Outcome != spool.TurnOK {
		t.Errorf("the next cell: %+v", d)
	}
}

// A message of an interpreter has at most maxFrame bytes.
func TestMessagesOfInterpretersAreBounded(t *testing.T) {
	t.Parallel()
	for size, want := range map[uint32]error{maxFrame: nil, maxFrame + 1: errFrame, 1<<32 - 1: errFrame} {
		p := &interpreter{incoming: binary.LittleEndian.AppendUint32(nil, size)}
		if m, err := p.nextMessage(); m != nil || !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, %v", size, m, err)
		}
	}
}

// An engine keeps MaxZygotes; another one replaces the least lately used.
func TestZygotesAreBounded(t *testing.T) {
	t.Parallel()
	e := open(t)
	var first, second *zygote
	for i := range MaxZygotes + 1 {
		l, _, err := e.makeLaunchSpec(&spool.Spec{Env: map[string]string{"NUMBER": fmt.Sprint(i)}})
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := candidates("", l.cwd, l.env)
		if err != nil || len(list) == 0 {
			t.Fatalf("candidates: %v, %v", list, err)
		}
		z := e.makeZygote(list[0], l)
		switch i {
		case 0:
			first = z
		case 1:
			second = z
		case MaxZygotes - 1: // all but the second are used again
			first.mu.Lock()
			first.lastUsed = time.Now()
			first.mu.Unlock()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.zygotes) != MaxZygotes || e.zygotes[first.key] != first || e.zygotes[second.key] != nil {
		t.Errorf("%d zygotes; the first is there: %v, the second: %v", len(e.zygotes), e.zygotes[first.key] != nil, e.zygotes[second.key] != nil)
	}
}

// MaxQueued cells wait for the one that runs; a further one is refused.
func TestCellsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, open(t), python.KernelConfig{})
	running := r.cell("import time; print('runs', flush=True); time.sleep(1000)")
	r.log.UntilOutput(t, spool.Stdout, "runs")
	cell := spool.Input{Kind: spool.InputCell, Data: []byte(`{"code":"1"}`)}
	for i := range MaxQueued {
		if err := r.Takes(cell); err != nil {
			t.Fatalf("%d cells wait: %v", i, err)
		}
		r.cell("1")
	}
	if err := r.Takes(cell); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	r.control(spool.Control{Op: spool.ControlInterrupt, Turn: running})
	r.done(running)
}

// Values of a message are nested at most maxDepth deep.
func TestNestingOfMessagesIsBounded(t *testing.T) {
	t.Parallel()
	list := string([]byte{'[', 1, 0, 0, 0})
	for depth, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		_, err := decodeValue([]byte(strings.Repeat(list, depth) + "N"))
		if ok && err != nil || !ok && !errors.Is(err, errFrame) {
			t.Errorf("%d deep: %v", depth, err)
		}
	}
}
