package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// Kernels is a backend with a kernel engine.
type Kernels struct {
	spool.Backend
	// Reopen drops the connection between the caller and the runs, and returns
	// a backend that has found the runs again. A backend without a connection
	// returns itself.
	Reopen func(t *testing.T) spool.Backend
}

// RunTurns runs the suite of turns as a handle sees them: cells, their output,
// asks and ends. It needs a Python interpreter.
func RunTurns(t *testing.T, open func(t *testing.T) Kernels) {
	tests := []struct {
		name string
		test func(*testing.T, spool.Backend)
	}{
		{"a_cell_has_a_result", cellResult},
		{"output_comes_in_order_before_done", cellOrder},
		{"an_exception_ends_a_cell", cellException},
		{"interrupt_keeps_the_state", cellInterrupt},
		{"interrupt_of_a_cell_that_waits", cellInterruptQueued},
		{"an_ask_is_answered_once", cellAsk},
		{"turn_and_asks_are_described", waiting},
		{"tools_of_the_host", cellTools},
		{"fork_branches_the_state", forkState},
		{"a_large_display_is_a_blob", cellBlob},
		{"repeated_input_id_is_one_turn", repeatedCell},
		{"a_crash_is_told_and_nothing_is_repeated", cellCrash},
		{"a_run_that_ends_ends_its_turns", endedTurns},
		{"every_accepted_input_has_one_end", acceptedInputs},
		{"a_full_queue_is_busy", fullQueue},
		{"of_kernels_with_one_name_one_starts", kernelNamesAtOnce},
		{"a_question_is_answered_between_cells", inspects},
		{"the_ledger_of_a_kernel_counts_its_turns", ledgerTurns},
	}
	b := open(t) // one zygote serves all kernels
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, b) })
	}
	t.Run("a_turn_outlives_the_connection", func(t *testing.T) { turnReconnects(t, open(t)) })
}

// turnTime limits the turns of a test. It passes only when something is broken.
const turnTime = 5 * time.Minute

// kernel is a kernel run under test.
type kernel struct {
	*spool.Run
	t   *testing.T
	ctx context.Context
}

// startKernel starts a kernel, which the end of the test kills.
func startKernel(t *testing.T, b spool.Backend, config string) *kernel {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), turnTime)
	t.Cleanup(cancel)
	r, err := spool.Start(ctx, b, spool.Spec{Engine: python.EngineKernel, Cwd: t.TempDir(), Config: json.RawMessage(config)})
	if err != nil {
		t.Fatalf("start a kernel: %v", err)
	}
	endKernel(t, r)
	return &kernel{r, t, ctx}
}

func endKernel(t *testing.T, r *spool.Run) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), turnTime)
		defer cancel()
		if err := r.Kill(ctx); err != nil {
			t.Errorf("kill: %v", err)
		}
		if _, err := r.Wait(ctx); err != nil {
			t.Errorf("wait after kill: %v", err)
		}
	})
}

func (k *kernel) exec(code string) *spool.Turn {
	k.t.Helper()
	turn, err := k.Exec(k.ctx, "", spool.Cell{Code: code})
	if err != nil {
		k.t.Fatalf("send %q: %v", code, err)
	}
	return turn
}

// run runs a cell to its end.
func (k *kernel) run(code string) *turned {
	k.t.Helper()
	return k.await(k.exec(code))
}

// turned is a finished turn.
type turned struct {
	events []spool.Event
	done   spool.Done
	result string // its plain text
	raised python.Exception
}

// await reads a turn to its end and checks that all its events name it.
func (k *kernel) await(turn *spool.Turn) *turned {
	k.t.Helper()
	c := &turned{}
	for e, err := range turn.Events(k.ctx) {
		if err != nil {
			k.t.Fatalf("turn %d after %q: %v", turn.Seq(), summary(c.events), err)
		}
		c.events = append(c.events, e)
		if e.Turn != turn.Seq() {
			k.t.Fatalf("event %d of turn %d says turn %d", e.Seq, turn.Seq(), e.Turn)
		}
		switch e.Kind {
		case python.KindResult:
			c.result = text(k.t, decode[python.Display](k.t, e))
		case python.KindException:
			c.raised = decode[python.Exception](k.t, e)
		case spool.KindDone:
			c.done = decode[spool.Done](k.t, e)
		}
	}
	if c.done.Outcome == "" {
		k.t.Fatalf("turn %d has no end: %q", turn.Seq(), summary(c.events))
	}
	if d, err := turn.Wait(k.ctx); err != nil || d.Outcome != c.done.Outcome {
		k.t.Errorf("wait says %+v, %v; the log says %+v", d, err, c.done)
	}
	return c
}

// want runs a cell and checks its result.
func (k *kernel) want(code, result string) {
	k.t.Helper()
	if c := k.run(code); c.done.Outcome != spool.TurnOK || c.result != result {
		k.t.Errorf("%q ended %+v with %q, want %q", code, c.done, c.result, result)
	}
}

// until waits for the first event of a kind in a turn.
func (k *kernel) until(turn *spool.Turn, kind spool.Kind) spool.Event {
	k.t.Helper()
	for e, err := range turn.Events(k.ctx) {
		if err != nil {
			k.t.Fatal(err)
		}
		if e.Kind == kind {
			return e
		}
	}
	k.t.Fatalf("turn %d ended without %s", turn.Seq(), kind)
	return spool.Event{}
}

func decode[T any](t *testing.T, e spool.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		t.Fatalf("%s event %d: %v: %s", e.Kind, e.Seq, err, e.Data)
	}
	return v
}

func text(t *testing.T, d python.Display) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(d.Bundle["text/plain"], &s); err != nil {
		t.Fatalf("text of a display: %v: %s", err, d.Bundle["text/plain"])
	}
	return s
}

func cellResult(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	k.want("x = 20; x + 1", "21")
	k.want("_ * 2", "42")
	if c := k.run("'the third'"); c.done.ExecutionCount != 3 {
		t.Errorf("done says %+v", c.done)
	}
	info, err := k.Info(k.ctx)
	if err != nil || info.Engine != python.EngineKernel || info.State != spool.StateRunning {
		t.Errorf("info %+v, %v", info, err)
	}
}

func cellOrder(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	c := k.run("import subprocess, sys\nprint('one')\nprint('two', file=sys.stderr)\nsubprocess.run('echo three >&2; echo four', shell=True)\nprint('five', end='')\ndisplay('six')\n'seven'")
	var order []string
	var written strings.Builder
	for _, e := range c.events {
		if e.Kind == spool.KindOutput {
			written.Write(e.Bytes)
			continue
		}
		order = append(order, fmt.Sprintf("%s after %q", e.Kind, written.String()))
		written.Reset()
	}
	want := []string{`display after "one\ntwo\nthree\nfour\nfive"`, `result after ""`, `done after ""`}
	// The child writes to two pipes, whose order is not defined.
	if len(order) > 0 {
		order[0] = strings.Replace(order[0], `four\nthree\n`, `three\nfour\n`, 1)
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

func cellException(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	c := k.run("print('before')\n1/0")
	if c.done.Outcome != spool.TurnError || c.raised.Name != "ZeroDivisionError" || !strings.Contains(c.raised.Traceback, "1/0") {
		t.Errorf("%+v, %+v", c.done, c.raised)
	}
	if got := output(c.events, spool.Stdout); got != "before\n" {
		t.Errorf("stdout %q", got)
	}
	k.want("'alive'", "'alive'")
}

func cellInterrupt(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	k.want("x = 1; x", "1")
	turn := k.exec("import time\nprint('busy', flush=True)\ntime.sleep(3600)")
	k.until(turn, spool.KindOutput)
	if err := turn.Interrupt(k.ctx, 0); err != nil {
		t.Fatal(err)
	}
	if c := k.await(turn); c.done.Outcome != spool.TurnInterrupted || c.raised.Name != "KeyboardInterrupt" {
		t.Errorf("%+v, %+v", c.done, c.raised)
	}
	if err := turn.Interrupt(k.ctx, 0); err != nil {
		t.Errorf("interrupt of a turn that is over: %v", err)
	}
	k.want("x", "1")
}

func cellInterruptQueued(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"input":"ask"}`)
	first, second, third := k.exec("input()"), k.exec("'never'"), k.exec("'third'")
	ask := k.until(first, spool.KindAsk)
	if err := second.Interrupt(k.ctx, 0); err != nil {
		t.Fatal(err)
	}
	if c := k.await(second); c.done.Outcome != spool.TurnInterrupted || c.result != "" {
		t.Errorf("%+v", c)
	}
	if err := k.Reply(k.ctx, ask.Seq, "go on"); err != nil {
		t.Fatal(err)
	}
	if c := k.await(first); c.result != "'go on'" {
		t.Errorf("%+v", c)
	}
	if c := k.await(third); c.result != "'third'" {
		t.Errorf("%+v", c)
	}
}

func cellAsk(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"input":"ask"}`)
	turn := k.exec("print('before', end='')\na = input('name? ')\nimport sys\nb = sys.stdin.readline()\n(a, b)")
	e := k.until(turn, spool.KindAsk)
	if a := decode[spool.Ask](t, e); a.Kind != spool.AskInput || a.Prompt != "name? " || a.Secret {
		t.Errorf("ask %+v", a)
	}
	if err := k.Answer(k.ctx, spool.Answer{Ask: e.Seq, Data: json.RawMessage(`"Ada"`), By: "anna"}, false); err != nil {
		t.Fatal(err)
	}
	if err := k.Reply(k.ctx, e.Seq, "again"); !errors.Is(err, spool.ErrNotAsked) || !strings.Contains(err.Error(), "anna answered at ") {
		t.Errorf("a second answer: %v", err)
	}
	for again, err := range turn.Events(k.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if again.Kind == spool.KindAsk && again.Seq != e.Seq {
			if err := k.Reply(k.ctx, again.Seq, "Grace"); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := k.await(turn)
	if c.result != `('Ada', 'Grace\n')` || output(c.events, spool.Stdout) != "before" {
		t.Errorf("%+v", c)
	}
	// Without that setting input() does not ask and does not wait.
	if c := startKernel(t, b, "").run("input()"); c.done.Outcome != spool.TurnError || c.raised.Name != "EOFError" {
		t.Errorf("%+v, %+v", c.done, c.raised)
	}
}

func cellTools(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"tools":["add","fail","slow"]}`)
	cancelled := make(chan struct{})
	tools := map[string]spool.Tool{
		"add": func(_ context.Context, raw json.RawMessage) (any, error) {
			var in struct{ A, B int }
			err := json.Unmarshal(raw, &in)
			return map[string]int{"sum": in.A + in.B}, err
		},
		"fail": func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("it does not work") },
		"slow": func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		},
	}
	ctx, cancel := context.WithCancel(k.ctx)
	served := make(chan error, 1)
	go func() { served <- k.ServeTools(ctx, 0, tools) }()
	defer func() {
		cancel()
		if err := <-served; err != nil && ctx.Err() == nil {
			t.Errorf("serve tools: %v", err)
		}
	}()
	k.want("tool.add(a=2, b=3)['sum']", "5")
	if c := k.run("tool.fail()"); c.done.Outcome != spool.TurnError || !strings.Contains(c.raised.Message, "it does not work") {
		t.Errorf("%+v, %+v", c.done, c.raised)
	}
	if c := k.run("tool.other()"); c.done.Outcome != spool.TurnError || !strings.Contains(c.raised.Message, "other") || !strings.Contains(c.raised.Message, "add") {
		t.Errorf("%+v, %+v", c.done, c.raised)
	}
	k.want("import threading\ngot = []\nts = [threading.Thread(target=lambda i=i: got.append(tool.add(a=i, b=1)['sum'])) for i in range(8)]\n"+
		"[t.start() for t in ts]; [t.join() for t in ts]; sorted(got)", "[1, 2, 3, 4, 5, 6, 7, 8]")
	turn := k.exec("tool.slow()")
	k.until(turn, spool.KindAsk)
	if err := turn.Interrupt(k.ctx, 0); err != nil {
		t.Fatal(err)
	}
	if c := k.await(turn); c.done.Outcome != spool.TurnInterrupted {
		t.Errorf("%+v", c.done)
	}
	select {
	case <-cancelled:
	case <-k.ctx.Done():
		t.Error("the call was not cancelled with its cell")
	}
	k.want("1", "1")
}

func forkState(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	k.want("x = [1]; x", "[1]")
	r, err := k.Fork(k.ctx, spool.Spec{Name: "branch"})
	if err != nil {
		t.Fatal(err)
	}
	endKernel(t, r)
	branch := &kernel{r, t, k.ctx}
	branch.want("x.append(2); x", "[1, 2]")
	k.want("x", "[1]")
	if info, err := branch.Info(k.ctx); err != nil || info.Name != "branch" || info.Engine != python.EngineKernel {
		t.Errorf("info %+v, %v", info, err)
	}
	k.want("import threading; e = threading.Event(); threading.Thread(target=e.wait).start(); 1", "1")
	var se *spool.StartError
	if _, err := k.Fork(k.ctx, spool.Spec{}); !errors.As(err, &se) || !strings.Contains(err.Error(), "thread") {
		t.Errorf("fork with a thread: %v", err)
	}
	k.want("e.set(); 2", "2")
}

func cellBlob(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	turn := k.exec("class P:\n    def _repr_png_(self): return b'\\x89PNG' + bytes(100_000)\nP()")
	d := decode[python.Display](t, k.until(turn, python.KindResult))
	var blob spool.Blob
	if err := json.Unmarshal(d.Bundle["image/png"], &blob); err != nil || blob.Size != 100_004 {
		t.Fatalf("blob %+v, %v; %s", blob, err, d.Bundle["image/png"])
	}
	f, err := k.Blob(k.ctx, blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	content, err := io.ReadAll(f)
	if err != nil || len(content) != 100_004 || string(content[:4]) != "\x89PNG" {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}

func repeatedCell(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	k.want("n = 0; n", "0")
	cell, err := json.Marshal(spool.Cell{Code: "n += 1; n"})
	if err != nil {
		t.Fatal(err)
	}
	var first spool.Receipt
	for i := range 3 {
		receipt, err := k.Send(k.ctx, spool.Input{ID: "same", Kind: spool.InputCell, Data: cell})
		if err != nil || receipt.Repeated != (i > 0) {
			t.Fatalf("send %d: %+v, %v", i, receipt, err)
		}
		if i == 0 {
			first = receipt
		}
	}
	if c := k.await(k.Turn(first.Seq)); c.result != "1" || c.done.ID != "same" {
		t.Errorf("%+v", c)
	}
	k.want("n", "1")
}

func cellCrash(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, "")
	k.want("x = 1; x", "1")
	if c := k.run("print('last', flush=True); import os; os._exit(7)"); c.done.Outcome != spool.TurnCrashed || c.done.ExitCode == nil || *c.done.ExitCode != 7 || output(c.events, spool.Stdout) != "last\n" {
		t.Errorf("%+v", c)
	}
	next := k.exec("'x' in globals()")
	if c := k.await(next); c.result != "False" {
		t.Errorf("%+v", c)
	}
	// A notice reports the new interpreter.
	for e, err := range k.Events(k.ctx, next.Seq()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindNotice && strings.Contains(string(e.Data), "new interpreter") {
			break
		}
		if e.Kind == spool.KindDone {
			t.Fatal("no notice reports that the state is lost")
		}
	}
}

func endedTurns(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"input":"ask"}`)
	turns := []*spool.Turn{k.exec("input()"), k.exec("'never'")}
	k.until(turns[0], spool.KindAsk)
	if err := k.Kill(k.ctx); err != nil {
		t.Fatal(err)
	}
	for _, turn := range turns {
		if c := k.await(turn); c.done.Outcome != spool.TurnKilled {
			t.Errorf("turn %d: %+v", turn.Seq(), c.done)
		}
	}
	if _, err := k.Wait(k.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Exec(k.ctx, "", spool.Cell{Code: "1"}); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("a cell after the end: %v", err)
	}
}

// fullQueue sends cells to a kernel that executes none of them. The limit of
// waiting cells is well below the number of cells sent here.
// acceptedInputs kills a run while cells are sent to it. Each cell that was
// accepted has one done event before the closed event.
func acceptedInputs(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{}`)
	first := k.exec("import time; print('runs', flush=True); time.sleep(600)")
	k.until(first, spool.KindOutput)
	sent := make(chan []spool.Seq, 1)
	begun := make(chan struct{})
	go func() {
		var accepted []spool.Seq
		for {
			turn, err := k.Exec(k.ctx, "", spool.Cell{Code: "pass"})
			if errors.Is(err, spool.ErrBusy) {
				continue
			}
			if err != nil { // the run has ended
				sent <- accepted
				return
			}
			if accepted = append(accepted, turn.Seq()); len(accepted) == 10 {
				close(begun)
			}
		}
	}()
	<-begun
	if err := k.Kill(k.ctx); err != nil {
		t.Fatal(err)
	}
	ends := make(map[spool.Seq]int)
	var last spool.Kind
	for e, err := range k.Events(k.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if last = e.Kind; last == spool.KindDone {
			ends[e.Turn]++
		}
	}
	if last != spool.KindClosed {
		t.Errorf("the last event is %s", last)
	}
	for _, seq := range append(<-sent, first.Seq()) {
		if ends[seq] != 1 {
			t.Errorf("turn %d has %d ends", seq, ends[seq])
		}
	}
}

func fullQueue(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{}`)
	k.exec("import time; time.sleep(600)")
	for range 5000 {
		_, err := k.Exec(t.Context(), "", spool.Cell{Code: "pass"})
		if err != nil {
			if !errors.Is(err, spool.ErrBusy) {
				t.Errorf("a full queue gives %v", err)
			}
			return
		}
	}
	t.Error("the queue has no limit")
}

// turnReconnects reads a turn through two connections: every event is seen
// once, the open ask is still open, and the state is present.
func turnReconnects(t *testing.T, b Kernels) {
	k := startKernel(t, b, `{"input":"ask"}`)
	turn := k.exec("for i in range(100): print(i)\nname = input('who? ')\nfor i in range(100, 200): print(i)\nname")
	var seen []spool.Event
	var ask spool.Seq
	for e, err := range k.Events(k.ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e)
		if e.Kind == spool.KindAsk {
			ask = e.Seq
			break
		}
	}
	again := &kernel{spool.Attach(b.Reopen(t), k.ID()), t, k.ctx}
	if err := again.Reply(k.ctx, ask, "Ada"); err != nil {
		t.Fatal(err)
	}
	for e, err := range again.Events(k.ctx, ask) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e)
		if e.Kind == spool.KindDone {
			break
		}
	}
	for i, e := range seen {
		if e.Seq != spool.Seq(i+1) {
			t.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
	}
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln(&want, i)
	}
	if got := output(seen, spool.Stdout); got != want.String() {
		t.Errorf("stdout %q", got)
	}
	if c := again.await(again.Turn(turn.Seq())); c.result != "'Ada'" {
		t.Errorf("%+v", c)
	}
	again.want("name", "'Ada'")
	if !slices.ContainsFunc(seen, func(e spool.Event) bool { return e.Kind == python.KindResult }) {
		t.Error("the result is missing")
	}
}
