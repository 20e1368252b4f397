package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/spool-run/spool"
)

// lifeCases are what every run has.
var lifeCases = []testCase{
	{GroupLife, "kill_ends_the_run", killEndsTheRun},
	{GroupLife, "stop_ends_the_run", stopEndsTheRun},
	{GroupLife, "input_after_the_end_is_refused", inputAfterTheEnd},
	{GroupLife, "unknown_control_is_refused", unknownControl},
	{GroupLife, "unknown_input_is_refused", unknownInput},
	{GroupLife, "start_with_an_ended_context_fails", startWithEndedContext},
}

func killEndsTheRun(t *testing.T, s *Subject) { endsTheRun(t, s, spool.ControlKill) }
func stopEndsTheRun(t *testing.T, s *Subject) { endsTheRun(t, s, spool.ControlStop) }

// endsTheRun checks that a control ends the run, that the last event says how,
// and that the control may come again.
func endsTheRun(t *testing.T, s *Subject, op spool.ControlOp) {
	session, log := start(t, s.Open(t), s.Spec(t))
	for range 2 {
		if err := session.Control(t.Context(), spool.Control{Op: op}); err != nil && !errors.Is(err, spool.ErrEnded) {
			t.Errorf("%s: %v", op, err)
		}
	}
	got := Wait(t, session)
	events := log.All(t)
	if len(events) == 0 {
		t.Fatal("the log is empty")
	}
	want, ok := events[len(events)-1].Outcome()
	if !ok || got != want {
		t.Errorf("outcome %v; the log is\n%s", got, log.Dump(t))
	}
	if err := session.Control(t.Context(), spool.Control{Op: op}); err != nil && !errors.Is(err, spool.ErrEnded) {
		t.Errorf("%s after the end: %v", op, err)
	}
	if n := len(log.All(t)); n != len(events) {
		t.Errorf("%d events came after the end:\n%s", n-len(events), log.Dump(t))
	}
}

func inputAfterTheEnd(t *testing.T, s *Subject) {
	session, _ := start(t, s.Open(t), s.Spec(t))
	in := spool.Input{Kind: spool.InputStdin, Bytes: []byte("x")}
	if s.Turns.Kind != "" {
		in = spool.Input{Kind: s.Turns.Kind, Data: encode(t, s.Turns.Quick())}
	}
	if err := session.Control(t.Context(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	Wait(t, session)
	if err := session.Takes(in); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("takes %s after the end: %v", in.Kind, err)
	}
	if err := session.Send(t.Context(), in); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("send %s after the end: %v", in.Kind, err)
	}
}

func unknownControl(t *testing.T, s *Subject) {
	session, _ := start(t, s.Open(t), s.Spec(t))
	if err := session.Control(t.Context(), spool.Control{Op: "dance"}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("%v, want %v", err, spool.ErrUnsupported)
	}
}

func unknownInput(t *testing.T, s *Subject) {
	session, _ := start(t, s.Open(t), s.Spec(t))
	if err := session.Takes(spool.Input{Kind: "song"}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("%v, want %v", err, spool.ErrUnsupported)
	}
}

func startWithEndedContext(t *testing.T, s *Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := NewLog()
	session, err := s.Open(t).Start(ctx, s.Spec(t), log)
	var start *spool.StartError
	if err != nil {
		if !errors.As(err, &start) {
			t.Errorf("start: %v, want a start error", err)
		}
		return
	}
	// An engine that waits for nothing at the start has nothing to give up.
	if err := session.Control(t.Context(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Error(err)
	}
	Wait(t, session)
}
