package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/host"
)

// asker is an engine whose turns ask for what they then give back.
type asker struct{}

type askerSession struct {
	out  engine.Sink
	end  chan struct{}
	ask  spool.Seq
	turn spool.Seq
}

func (asker) Start(_ context.Context, _ spool.Spec, out engine.Sink) (engine.Session, error) {
	return &askerSession{out: out, end: make(chan struct{})}, nil
}

func (s *askerSession) Pid() int                   { return 0 }
func (s *askerSession) Takes(in spool.Input) error { return nil }
func (s *askerSession) Control(_ context.Context, c spool.Control) error {
	if c.Op == spool.ControlKill {
		close(s.end)
	}
	return nil
}

func (s *askerSession) Wait() spool.Outcome {
	<-s.end
	return spool.Outcome{Kind: spool.Failed, Reason: "killed"}
}

// Send is called by one goroutine at a time.
func (s *askerSession) Send(_ context.Context, in spool.Input) (err error) {
	switch in.Kind {
	case spool.InputCell:
		s.turn = in.Seq
		s.ask, err = s.out.Append(spool.Event{Kind: spool.KindAsk, Turn: s.turn, Data: json.RawMessage(`{"kind":"tool","name":"double","data":21}`)})
	case spool.InputAnswer:
		var a spool.Answer
		if err := json.Unmarshal(in.Data, &a); err != nil {
			return err
		}
		if _, err := s.out.Append(spool.Event{Kind: spool.KindResult, Turn: s.turn, Data: a.Data}); err != nil {
			return err
		}
		_, err = s.out.Append(spool.Event{Kind: spool.KindDone, Turn: s.turn, Data: json.RawMessage(`{"outcome":"ok"}`)})
	}
	return err
}

func startAsker(t *testing.T) *spool.Run {
	t.Helper()
	h := openWith(t, host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		"asker": func(string) (engine.Engine, error) { return asker{}, nil },
	}})
	run, err := spool.Start(t.Context(), h, spool.Spec{Engine: "asker"})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func waitAsk(t *testing.T, run *spool.Run, turn *spool.Turn) spool.Seq {
	t.Helper()
	for e, err := range turn.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindAsk {
			return e.Seq
		}
	}
	t.Fatal("nothing was asked")
	return 0
}

func TestToolAnswersAsk(t *testing.T) {
	run := startAsker(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- run.ServeTools(ctx, 0, map[string]spool.Tool{"double": func(_ context.Context, args json.RawMessage) (any, error) {
			var n int
			err := json.Unmarshal(args, &n)
			return 2 * n, err
		}})
	}()
	for range 3 {
		turn, err := run.Exec(t.Context(), spool.Cell{Code: "double(21)"})
		if err != nil {
			t.Fatal(err)
		}
		var result string
		for e, err := range turn.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == spool.KindResult {
				result = string(e.Data)
			}
		}
		if done, err := turn.Wait(t.Context()); err != nil || done.Outcome != spool.TurnOK || result != "42" {
			t.Errorf("turn: %+v %v, result %s", done, err, result)
		}
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("serve: %v", err)
	}
}

func TestAnswerCountsOnce(t *testing.T) {
	run := startAsker(t)
	if err := run.Reply(t.Context(), 1, 0); !errors.Is(err, spool.ErrNotAsked) {
		t.Errorf("answer to nothing: %v", err)
	}
	turn, err := run.Exec(t.Context(), spool.Cell{Code: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ask := waitAsk(t, run, turn)
	if err := run.Reply(t.Context(), ask, 1); err != nil {
		t.Fatal(err)
	}
	if err := run.Reply(t.Context(), ask, 2); !errors.Is(err, spool.ErrNotAsked) {
		t.Errorf("second answer: %v", err)
	}
}

func TestInputEventOnce(t *testing.T) {
	run := startAsker(t)
	in := spool.Input{ID: "c1", Kind: spool.InputCell, Data: json.RawMessage(`{"code":"1"}`)}
	first, err := run.Send(t.Context(), in)
	if err != nil || first.Seq == 0 {
		t.Fatalf("send: %+v %v", first, err)
	}
	again, err := run.Send(t.Context(), in)
	if err != nil || again.Seq != first.Seq || !again.Repeated {
		t.Errorf("sent again: %+v %v", again, err)
	}
}

func TestSecretStaysOutOfLog(t *testing.T) {
	run := startAsker(t)
	turn, err := run.Exec(t.Context(), spool.Cell{Code: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ask := waitAsk(t, run, turn)
	data, _ := json.Marshal(spool.Answer{Ask: ask, Data: json.RawMessage(`"hunter2"`)})
	receipt, err := run.Send(t.Context(), spool.Input{Kind: spool.InputAnswer, Data: data, Secret: true})
	if err != nil {
		t.Fatal(err)
	}
	page, err := run.Read(t.Context(), spool.Query{After: receipt.Seq - 1})
	if err != nil {
		t.Fatal(err)
	}
	if e := page.Events[0]; e.Kind != spool.KindInput || strings.Contains(string(e.Data), "hunter2") {
		t.Errorf("logged %s %s", e.Kind, e.Data)
	}
}

// The end of standard input is that of a turn; the run goes on.
func TestEOFKeepsTurns(t *testing.T) {
	run := startAsker(t)
	if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		turn, err := run.Exec(t.Context(), spool.Cell{Code: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Reply(t.Context(), waitAsk(t, run, turn), "y"); err != nil {
			t.Fatal(err)
		}
	}
}
