package kernel

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/python"
)

// open returns an engine that ends with the test.
func open(t testing.TB) *Engine {
	t.Helper()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// testRun is a run under test, with the host's part of numbering turns.
type testRun struct {
	engine.Session
	t   testing.TB
	log *enginetest.Log
}

// startTimeoutMs is enough for an interpreter to start on a busy machine.
const startTimeoutMs = 120_000

func start(t testing.TB, e *Engine, cfg python.KernelConfig, spec ...spool.Spec) *testRun {
	t.Helper()
	if cfg.Interpreter == "" {
		cfg.Interpreter = testPython(t)
	}
	r, err := tryStart(t, e, cfg, spec...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryStart(t testing.TB, e *Engine, cfg python.KernelConfig, spec ...spool.Spec) (*testRun, error) {
	t.Helper()
	if cfg.StartTimeoutMs == 0 {
		cfg.StartTimeoutMs = startTimeoutMs
	}
	var sp spool.Spec
	if len(spec) > 0 {
		sp = spec[0]
	}
	var err error
	if sp.Config, err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	s, err := e.Start(context.Background(), sp, log)
	if err != nil {
		return nil, err
	}
	r := &testRun{s, t, log}
	t.Cleanup(func() {
		if err := s.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil {
			t.Errorf("kill: %v", err)
		}
		s.Wait()
	})
	return r, nil
}

// send says something to the run, as the host does.
func (r *testRun) send(kind spool.InputKind, payload any) spool.Seq {
	r.t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		r.t.Fatal(err)
	}
	said, err := json.Marshal(spool.Said{Kind: kind, Data: data})
	if err != nil {
		r.t.Fatal(err)
	}
	seq, err := r.log.Append(spool.Event{Kind: spool.KindInput, Data: said})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.Send(context.Background(), spool.Input{Kind: kind, Data: data, Seq: seq}); err != nil {
		r.t.Fatalf("send: %v", err)
	}
	return seq
}

func (r *testRun) cell(code string) spool.Seq {
	r.t.Helper()
	return r.send(spool.InputCell, spool.Cell{Code: code})
}

func (r *testRun) control(c spool.Control) {
	r.t.Helper()
	if err := r.Control(context.Background(), c); err != nil {
		r.t.Fatalf("%s: %v", c.Op, err)
	}
}

// done waits for the end of a turn.
func (r *testRun) done(turn spool.Seq) spool.Done {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), enginetest.Patience)
	defer cancel()
	for e, err := range r.log.Follow(ctx, turn) { // not from the start: there may be a lot
		if err != nil {
			r.t.Fatalf("wait for the end of turn %d: %v; the log is:\n%s", turn, err, r.log.Dump(r.t))
		}
		if e.Kind == spool.KindDone && e.Turn == turn {
			return enginetest.Data[spool.Done](r.t, e)
		}
	}
	r.t.Fatalf("the log ended before turn %d did", turn)
	return spool.Done{}
}

// turnEvents is what a turn said, put together.
type turnEvents struct {
	spool.Done
	out, err  string
	result    string
	exception python.Exception
	displays  []python.Display
	notices   []spool.Notice
	order     []string // what came, in order
}

func (r *testRun) turnEvents(turn spool.Seq) turnEvents {
	r.t.Helper()
	res := turnEvents{Done: r.done(turn)}
	for _, e := range r.log.All(r.t) {
		if e.Turn != turn {
			continue
		}
		switch e.Kind {
		case spool.KindOutput:
			if e.Stream == spool.Stdout {
				res.out += string(e.Bytes)
			} else {
				res.err += string(e.Bytes)
			}
			res.order = append(res.order, string(e.Bytes))
		case python.KindResult:
			d := enginetest.Data[python.Display](r.t, e)
			res.result = plain(r.t, d)
			res.order = append(res.order, "result")
		case python.KindDisplay:
			res.displays = append(res.displays, enginetest.Data[python.Display](r.t, e))
			res.order = append(res.order, "display")
		case python.KindException:
			res.exception = enginetest.Data[python.Exception](r.t, e)
			res.order = append(res.order, "exception")
		case spool.KindNotice:
			res.notices = append(res.notices, enginetest.Data[spool.Notice](r.t, e))
		}
	}
	return res
}

func plain(t testing.TB, d python.Display) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(d.Bundle["text/plain"], &s); err != nil {
		t.Fatalf("text of a display: %v: %s", err, d.Bundle["text/plain"])
	}
	return s
}

// run runs a cell to its end.
func (r *testRun) run(code string) turnEvents {
	r.t.Helper()
	return r.turnEvents(r.cell(code))
}

// ok runs a cell that must work.
func (r *testRun) ok(code string) turnEvents {
	r.t.Helper()
	res := r.run(code)
	if res.Outcome != spool.TurnOK {
		r.t.Fatalf("%q ended with %s: %s\n%s", code, res.Outcome, res.Error, r.log.Dump(r.t))
	}
	return res
}

// want runs a cell that must have that result.
func (r *testRun) want(code, result string) {
	r.t.Helper()
	if res := r.ok(code); res.result != result {
		r.t.Errorf("%q gives %q, want %q", code, res.result, result)
	}
}

// shared is an engine for tests that need nothing special, so that they share
// its zygote.
var shared = sync.OnceValues(func() (*Engine, error) { return New(Options{}) })

func init() {
	closeShared = func() error {
		e, err := shared()
		if err != nil {
			return err
		}
		return e.Close()
	}
}

// modes runs a test with interpreters that are started plainly and with those
// that a zygote forked: nobody must see a difference.
func modes(t *testing.T, test func(t *testing.T, e *Engine, cfg python.KernelConfig)) {
	e, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []python.ZygoteMode{python.ZygoteOff, python.ZygoteWait} {
		t.Run(string(mode), func(t *testing.T) { test(t, e, python.KernelConfig{Zygote: mode}) })
	}
}

func TestCells(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		r.want("x = 20\nx + 1", "21")
		r.want("_ * 2", "42")
		if res := r.ok("x + 1;"); res.result != "" {
			t.Errorf("a trailing semicolon gives %q", res.result)
		}
		res := r.ok("print('a'); import sys; print('b', file=sys.stderr); print('c')")
		if got := strings.Join(res.order, ""); got != "a\nb\nc\n" {
			t.Errorf("output is %q", res.order)
		}
		if res := r.run("1/0"); res.Outcome != spool.TurnError || res.exception.Name != "ZeroDivisionError" || !strings.Contains(res.exception.Traceback, "1/0") || strings.Contains(res.exception.Traceback, "runner") {
			t.Errorf("%+v", res)
		}
		if res := r.ok("'the end'"); res.ExecutionCount != 6 {
			t.Errorf("count is %d", res.ExecutionCount)
		}
	})
}

func TestInterruptKeepsState(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		r.ok("x = 1")
		for _, code := range []string{"import time; time.sleep(100)", "while True: pass", "import asyncio\nawait asyncio.sleep(100)"} {
			turn := r.cell("print('go', flush=True)\n" + code)
			r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
			begin := time.Now()
			r.control(spool.Control{Op: spool.ControlInterrupt})
			if res := r.turnEvents(turn); res.Outcome != spool.TurnInterrupted || res.exception.Name != "KeyboardInterrupt" {
				t.Errorf("%q: %+v", code, res)
			}
			t.Log(time.Since(begin))
		}
		r.want("x", "1")
	})
}
