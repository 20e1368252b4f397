package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
)

// turnCases are what every run with turns has.
var turnCases = []testCase{
	{GroupTurns, "turns_run_in_order", turnsInOrder},
	{GroupTurns, "interrupt_ends_the_turn_that_runs", interruptRunning},
	{GroupTurns, "interrupt_that_overtakes_its_turn_is_kept", interruptKept},
	{GroupTurns, "interrupt_right_after_the_input_counts", interruptAtOnce},
	{GroupTurns, "interrupt_without_a_turn_does_nothing", interruptIdle},
	{GroupTurns, "control_of_a_turn_that_waits_cancels_it", controlWaiting},
	{GroupTurns, "control_of_a_turn_that_is_over_does_nothing", controlOver},
	{GroupTurns, "control_of_the_turn_that_runs_leaves_the_run", controlRunning},
	{GroupTurns, "done_comes_exactly_once", doneOnce},
	{GroupTurns, "turn_times_out", turnTimesOut},
	{GroupTurns, "stop_settles_every_turn", stopSettles},
	{GroupTurns, "kill_settles_every_turn", killSettles},
	{GroupTurns, "ask_is_answered_once", askAnswered},
	{GroupTurns, "ask_ends_with_its_turn", askEnds},
}

// grace is what interrupts of these tests grant: enough for a turn that listens
// on a busy machine.
const grace = 30 * time.Second

// talk is a run with turns and the host's part of it.
type talk struct {
	engine.Session
	t     *testing.T
	log   *Log
	turns Turns
}

func startTalk(t *testing.T, s *Subject) *talk {
	t.Helper()
	session, log := start(t, s.Open(t), s.Spec(t))
	return &talk{session, t, log, s.Turns}
}

func encode(t testing.TB, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// record logs an input, as a host does before it sends the input.
func (k *talk) record(kind spool.InputKind, payload any) spool.Input {
	k.t.Helper()
	in := spool.Input{Kind: kind, Data: encode(k.t, payload)}
	if err := k.Takes(in); err != nil {
		k.t.Fatalf("takes %s: %v", kind, err)
	}
	seq, err := k.log.Append(spool.Event{Kind: spool.KindInput, Data: encode(k.t, spool.Said{Kind: kind, Data: in.Data})})
	if err != nil {
		k.t.Fatal(err)
	}
	in.Seq = seq
	return in
}

func (k *talk) send(in spool.Input) spool.Seq {
	k.t.Helper()
	if err := k.Send(k.t.Context(), in); err != nil {
		k.t.Fatalf("send %s: %v", in.Kind, err)
	}
	return in.Seq
}

// begin sends an input that begins a turn.
func (k *talk) begin(payload any) spool.Seq {
	k.t.Helper()
	return k.send(k.record(k.turns.Kind, payload))
}

// slow begins a turn that runs until it is ended, and waits until it runs.
func (k *talk) slow() spool.Seq {
	k.t.Helper()
	turn := k.begin(k.turns.Slow(0))
	k.running(turn)
	return turn
}

// running waits until a slow turn says something.
func (k *talk) running(turn spool.Seq) {
	k.t.Helper()
	k.log.Until(k.t, "output of the turn", func(e spool.Event) bool {
		return e.Turn == turn && (e.Kind == spool.KindOutput || e.Kind == agent.KindMessage)
	})
}

func (k *talk) control(op spool.ControlOp, turn spool.Seq) {
	k.t.Helper()
	c := spool.Control{Op: op, Turn: turn}
	if op == spool.ControlInterrupt {
		c.Grace = grace
	}
	if err := k.Control(k.t.Context(), c); err != nil {
		k.t.Fatalf("%s: %v", op, err)
	}
}

// done waits for the end of a turn.
func (k *talk) done(turn spool.Seq) spool.Done {
	k.t.Helper()
	e := k.log.Until(k.t, "the end of the turn", func(e spool.Event) bool { return e.Kind == spool.KindDone && e.Turn == turn })
	return Data[spool.Done](k.t, e)
}

func (k *talk) want(turn spool.Seq, want spool.TurnOutcome) spool.Done {
	k.t.Helper()
	d := k.done(turn)
	if d.Outcome != want {
		k.t.Fatalf("turn %d ended %+v, want %s; the log is\n%s", turn, d, want, k.log.Dump(k.t))
	}
	return d
}

// alive checks that the run takes turns, and then that every turn that is over
// has one done event.
func (k *talk) alive() {
	k.t.Helper()
	k.want(k.begin(k.turns.Quick()), spool.TurnOK)
	k.ended()
}

// ended returns the turns that are over, in the order of their done events.
func (k *talk) ended() []spool.Seq {
	k.t.Helper()
	var turns []spool.Seq
	for _, e := range k.log.All(k.t) {
		if e.Kind != spool.KindDone {
			continue
		}
		if slices.Contains(turns, e.Turn) {
			k.t.Errorf("turn %d has two done events:\n%s", e.Turn, k.log.Dump(k.t))
		}
		turns = append(turns, e.Turn)
	}
	return turns
}

func turnsInOrder(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	var sent []spool.Seq
	for range 5 {
		sent = append(sent, k.begin(k.turns.Quick()))
	}
	for _, turn := range sent {
		k.want(turn, spool.TurnOK)
	}
	if got := k.ended(); !slices.Equal(got, sent) {
		t.Errorf("turns ended as %v, want %v", got, sent)
	}
}

func interruptRunning(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	for _, named := range []bool{true, false} {
		turn := k.slow()
		of := turn
		if !named {
			of = 0
		}
		k.control(spool.ControlInterrupt, of)
		k.want(turn, spool.TurnInterrupted)
	}
	k.alive()
}

func interruptKept(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	for _, busy := range []bool{false, true} {
		var first spool.Seq
		if busy {
			first = k.slow()
		}
		in := k.record(k.turns.Kind, k.turns.Slow(0))
		k.control(spool.ControlInterrupt, in.Seq)
		k.send(in)
		k.want(in.Seq, spool.TurnInterrupted)
		if busy {
			k.control(spool.ControlInterrupt, first)
			k.want(first, spool.TurnInterrupted)
		}
	}
	k.alive()
}

func interruptAtOnce(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	for i := range 6 {
		turn := k.begin(k.turns.Slow(0))
		of := turn
		if i%2 > 0 {
			of = 0
		}
		if err := k.Control(t.Context(), spool.Control{Op: spool.ControlInterrupt, Turn: of, Grace: grace / 5}); err != nil {
			t.Fatal(err)
		}
		k.want(turn, spool.TurnInterrupted)
	}
	k.alive()
}

func interruptIdle(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	k.alive()
	k.control(spool.ControlInterrupt, 0)
	k.alive()
}

func controlWaiting(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	first := k.slow()
	for op, want := range map[spool.ControlOp]spool.TurnOutcome{
		spool.ControlInterrupt: spool.TurnInterrupted,
		spool.ControlStop:      spool.TurnCancelled,
		spool.ControlKill:      spool.TurnKilled,
	} {
		turn := k.begin(k.turns.Quick())
		k.control(op, turn)
		if d := k.want(turn, want); d.EndedBy != string(op) {
			t.Errorf("%s: %+v", op, d)
		}
	}
	if slices.Contains(k.ended(), first) {
		t.Errorf("the turn that runs ended, too:\n%s", k.log.Dump(t))
	}
	k.control(spool.ControlInterrupt, first)
	k.want(first, spool.TurnInterrupted)
	k.alive()
}

func controlOver(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	over := k.begin(k.turns.Quick())
	k.want(over, spool.TurnOK)
	turn := k.slow()
	for _, c := range []spool.Control{
		{Op: spool.ControlInterrupt}, {Op: spool.ControlStop}, {Op: spool.ControlKill}, {Op: spool.ControlRestart},
		{Op: spool.ControlSignal, Signal: "SIGTERM"}, {Op: spool.ControlSignal, Signal: "SIGKILL"},
	} {
		c.Turn = over
		if err := k.Control(t.Context(), c); err != nil && !errors.Is(err, spool.ErrUnsupported) {
			t.Errorf("%s: %v", c.Op, err)
		}
	}
	k.control(spool.ControlInterrupt, turn)
	if d := k.want(turn, spool.TurnInterrupted); d.EndedBy != "interrupt" {
		t.Errorf("%+v", d)
	}
	k.alive()
}

func controlRunning(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	turn := k.slow()
	k.control(spool.ControlKill, turn)
	if d := k.want(turn, spool.TurnKilled); d.EndedBy != "kill" {
		t.Errorf("%+v", d)
	}
	turn = k.slow()
	k.control(spool.ControlStop, turn)
	if d := k.done(turn); d.Outcome == spool.TurnOK {
		t.Errorf("%+v", d)
	}
	k.alive()
}

func doneOnce(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	turn := k.slow()
	for range 3 {
		k.control(spool.ControlInterrupt, turn)
		k.control(spool.ControlInterrupt, 0)
	}
	k.control(spool.ControlKill, turn)
	if d := k.done(turn); d.Outcome == spool.TurnOK {
		t.Errorf("%+v", d)
	}
	k.alive()
}

func turnTimesOut(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	k.alive() // what the first turn waits for is no part of this
	turn := k.begin(k.turns.Slow(500))
	k.want(turn, spool.TurnTimeout)
	k.alive()
}

func stopSettles(t *testing.T, s *Subject) { settles(t, s, spool.ControlStop) }
func killSettles(t *testing.T, s *Subject) { settles(t, s, spool.ControlKill) }

// settles checks that the end of the run ends every turn that was sent.
func settles(t *testing.T, s *Subject, op spool.ControlOp) {
	k := startTalk(t, s)
	sent := []spool.Seq{k.slow()}
	for range 3 {
		sent = append(sent, k.begin(k.turns.Quick()))
	}
	k.control(op, 0)
	Wait(t, k.Session)
	got := k.ended()
	slices.Sort(got)
	if !slices.Equal(got, sent) {
		t.Fatalf("turns %v ended, want %v:\n%s", got, sent, k.log.Dump(t))
	}
	for _, turn := range sent {
		if d := k.done(turn); d.Outcome == spool.TurnOK || d.Outcome == "" {
			t.Errorf("turn %d ended %+v", turn, d)
		}
	}
}

// asked waits for the ask of a turn.
func (k *talk) asked(turn spool.Seq) spool.Seq {
	k.t.Helper()
	return k.log.Until(k.t, "an ask", func(e spool.Event) bool { return e.Turn == turn && e.OpensAsk() }).Seq
}

func (k *talk) answer(ask spool.Seq) {
	k.t.Helper()
	k.send(k.record(spool.InputAnswer, spool.Answer{Ask: ask, Data: encode(k.t, k.turns.Answer)}))
}

func askAnswered(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	turn := k.begin(k.turns.Ask())
	ask := k.asked(turn)
	if slices.Contains(k.ended(), turn) {
		t.Error("the turn did not wait for the answer")
	}
	k.answer(ask)
	k.answer(ask) // a host lets only the first pass; a second one does no harm
	k.want(turn, spool.TurnOK)
	k.alive()
}

func askEnds(t *testing.T, s *Subject) {
	k := startTalk(t, s)
	turn := k.begin(k.turns.Ask())
	ask := k.asked(turn)
	k.control(spool.ControlInterrupt, turn)
	if d := k.done(turn); d.Outcome == spool.TurnOK {
		t.Errorf("%+v", d)
	}
	k.answer(ask) // the turn no longer waits for it
	again := k.begin(k.turns.Ask())
	second := k.log.Until(t, "another ask", func(e spool.Event) bool { return e.Turn == again && e.OpensAsk() }).Seq
	k.answer(ask)
	k.answer(second)
	k.want(again, spool.TurnOK)
	if err := k.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil {
		t.Error(err)
	}
	Wait(t, k.Session)
	for _, e := range k.log.All(t) {
		if e.OpensAsk() && !slices.ContainsFunc(k.log.All(t), func(c spool.Event) bool { return c.ClosesAsk(e.Seq, e.Turn) }) {
			t.Errorf("ask %d is open after the end", e.Seq)
		}
	}
}
