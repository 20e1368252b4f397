package kernel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/python"
)

// asked waits for the n-th ask of a turn.
func (r *testRun) asked(turn spool.Seq, n int) (spool.Seq, spool.Ask) {
	r.t.Helper()
	e := r.log.Until(r.t, "an ask", func(e spool.Event) bool {
		if e.Kind == spool.KindAsk && e.Turn == turn {
			n--
		}
		return e.Kind == spool.KindAsk && n == 0
	})
	return e.Seq, enginetest.Data[spool.Ask](r.t, e)
}

func raw(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInputFailsAtOnceIfNobodyAnswers(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		r := start(t, e, cfg)
		for _, code := range []string{"input('name? ')", "import getpass, warnings; warnings.simplefilter('ignore'); getpass.getpass()"} {
			if res := r.run(code); res.exception.Name != "EOFError" {
				t.Errorf("%s: %+v", code, res.exception)
			}
		}
		r.want("import sys; sys.stdin.read(), sys.stdin.readline(), list(sys.stdin)", "('', '', [])")
		r.want("import subprocess; subprocess.run(['cat'], capture_output=True).stdout", "b''")
	})
}

func TestInputAsks(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		cfg.Input = python.InputAsk
		r := start(t, e, cfg)
		turn := r.cell("print('before', end='')\na = input('name? ')\nimport getpass\nb = getpass.getpass('secret? ')\nimport sys\nc = sys.stdin.readline()\n(a, b, c)")
		seq, a := r.asked(turn, 1)
		if a.Kind != spool.AskInput || a.Prompt != "name? " || a.Secret {
			t.Errorf("ask is %+v", a)
		}
		if got := string(r.log.Output(t, spool.Stdout)); got != "before" {
			t.Errorf("output before the ask is %q", got)
		}
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: raw(t, "Ünï\n")})
		seq, a = r.asked(turn, 2)
		if !a.Secret || a.Prompt != "secret? " {
			t.Errorf("ask is %+v", a)
		}
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: raw(t, "xyz")})
		seq, _ = r.asked(turn, 3)
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: raw(t, "line")})
		if res := r.turnEvents(turn); res.result != `('Ünï', 'xyz', 'line\n')` {
			t.Errorf("%+v", res)
		}
		// An answer may be that there is none.
		turn = r.cell("input()")
		seq, _ = r.asked(turn, 1)
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Error: &spool.AnswerError{Message: "nobody is there"}})
		if res := r.turnEvents(turn); res.exception.Name != "EOFError" || res.exception.Message != "nobody is there" {
			t.Errorf("%+v", res)
		}
	})
}

func TestInterruptEndsAnAsk(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{Zygote: python.ZygoteOff, Input: python.InputAsk, Tools: []string{"wait"}, AgainMs: never.AgainMs})
	for code, asks := range map[string]int{
		"input()":     1,
		"tool.wait()": 1,
		// An interrupt while Thread.start waits may raise what Python's own
		// lock raises, so all four wait before it.
		"import threading\nts = [threading.Thread(target=tool.wait) for _ in range(3)]\n[t.start() for t in ts]\ntool.wait()": 4,
	} {
		turn := r.cell(code)
		r.asked(turn, asks)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if res := r.turnEvents(turn); res.Outcome != spool.TurnInterrupted {
			t.Errorf("%s: %+v", code, res.Done)
		}
	}
	r.want("1 + 1", "2")
}

func TestTools(t *testing.T) {
	modes(t, func(t *testing.T, e *Engine, cfg python.KernelConfig) {
		cfg.Tools = []string{"add", "fail"}
		r := start(t, e, cfg)
		turn := r.cell("tool.add(a=1, b={'deep': [None, 2.5, 'ü']})")
		seq, a := r.asked(turn, 1)
		if a.Kind != spool.AskTool || a.Name != "add" || string(a.Data) != `{"a":1,"b":{"deep":[null,2.5,"\u00fc"]}}` {
			t.Errorf("ask is %+v %s", a, a.Data)
		}
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: json.RawMessage(`{"sum": 12345678901234567890, "list": [1, "é", null]}`)})
		if res := r.turnEvents(turn); res.result != `{'sum': 12345678901234567890, 'list': [1, 'é', None]}` {
			t.Errorf("result is %q", res.result)
		}
		turn = r.cell("tool.fail({'x': 1}, y=2)")
		seq, a = r.asked(turn, 1)
		if string(a.Data) != `{"x":1,"y":2}` {
			t.Errorf("arguments are %s", a.Data)
		}
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Error: &spool.AnswerError{Message: "no way"}})
		if res := r.turnEvents(turn); res.exception.Name != "ToolError" || res.exception.Message != "no way" || strings.Contains(res.exception.Traceback, "runner") {
			t.Errorf("%+v", res.exception)
		}
		if res := r.run("tool.other()"); res.exception.Name != "AttributeError" || !strings.Contains(res.exception.Message, "add, fail") {
			t.Errorf("%+v", res.exception)
		}
		if res := r.run("tool.add(a=object())"); res.exception.Name != "TypeError" {
			t.Errorf("%+v", res.exception)
		}
		r.ok("import json; json.dumps = json.loads = json.JSONEncoder.encode = None")
		turn = r.cell("tool.add(a=1)")
		seq, _ = r.asked(turn, 1)
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: json.RawMessage(`3`)})
		if res := r.turnEvents(turn); res.result != "3" {
			t.Errorf("%+v", res)
		}
	})
}

// Threads may call tools at the same time, and answers come in any order.
func TestToolsOfThreads(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{Zygote: python.ZygoteOff, Tools: []string{"get"}})
	turn := r.cell("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(5) as p: v = list(p.map(lambda i: tool.get(i=i), range(5)))\nv")
	asks := make(map[string]spool.Seq)
	for n := range 5 {
		seq, a := r.asked(turn, n+1)
		asks[string(a.Data)] = seq
	}
	for _, args := range []string{`{"i":3}`, `{"i":0}`, `{"i":4}`, `{"i":1}`, `{"i":2}`} {
		r.send(spool.InputAnswer, spool.Answer{Ask: asks[args], Data: json.RawMessage(args)})
	}
	if res := r.turnEvents(turn); res.result != "[{'i': 0}, {'i': 1}, {'i': 2}, {'i': 3}, {'i': 4}]" {
		t.Errorf("%+v", res)
	}
}

// The time of a cell does not pass while the host works.

// The thread that reads answers changes all the time, and none takes the lock
// of another for its own.
func TestToolsOfTheMainThreadAndOthers(t *testing.T) {
	r := start(t, open(t), python.KernelConfig{Zygote: python.ZygoteOff, Tools: []string{"get"}})
	turn := r.cell(`import sys, threading
sys.setswitchinterval(1e-6)
def ask(): return [tool.get(i=i) for i in range(20)]
ts = [threading.Thread(target=ask) for _ in range(3)]
[t.start() for t in ts]
v = ask()
[t.join() for t in ts]
v == list(range(20))`)
	for n := range 80 {
		seq, a := r.asked(turn, n+1)
		var args struct{ I int }
		if err := json.Unmarshal(a.Data, &args); err != nil {
			t.Fatal(err)
		}
		r.send(spool.InputAnswer, spool.Answer{Ask: seq, Data: raw(t, args.I)})
	}
	if res := r.turnEvents(turn); res.result != "True" {
		t.Errorf("%+v", res)
	}
}
