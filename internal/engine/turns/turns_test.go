package turns

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// memory is a log that keeps asks as a host does: only the first answer to an
// open ask is logged, and closing an ask that was answered is refused.
type memory struct {
	mu     sync.Mutex
	events []spool.Event
	open   map[spool.Seq]spool.Seq // the turn of each open ask
	full   error                   // what Append returns
}

func (m *memory) append(e spool.Event) (spool.Seq, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(e)
}

func (m *memory) add(e spool.Event) (spool.Seq, error) {
	if m.full != nil {
		return 0, m.full
	}
	var n spool.Notice
	if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == spool.NoticeAskClosed {
		if _, ok := m.open[n.Ask]; !ok {
			return 0, spool.ErrNotAsked
		}
	}
	e.Seq = spool.Seq(len(m.events) + 1)
	m.events = append(m.events, e)
	if e.OpensAsk() {
		if m.open == nil {
			m.open = make(map[spool.Seq]spool.Seq)
		}
		m.open[e.Seq] = e.Turn
	}
	for ask, turn := range m.open {
		if e.ClosesAsk(ask, turn) {
			delete(m.open, ask)
		}
	}
	return e.Seq, nil
}

// input logs an input and returns it as an engine gets it.
func (m *memory) input(id string) spool.Input {
	seq, err := m.append(spool.Event{Kind: spool.KindInput, Data: encode(spool.Said{ID: id, Kind: spool.InputCell})})
	if err != nil {
		panic(err)
	}
	return spool.Input{ID: id, Kind: spool.InputCell, Seq: seq}
}

// answer logs an answer, if it is the first.
func (m *memory) answer(ask spool.Seq) (spool.Answer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := spool.Answer{Ask: ask, By: "a person"}
	if _, ok := m.open[ask]; !ok {
		return a, false
	}
	_, err := m.add(spool.Event{Kind: spool.KindInput, Data: encode(spool.Said{Kind: spool.InputAnswer, Data: encode(a)})})
	return a, err == nil
}

// dones returns how each turn ended, in the order of the log.
func (m *memory) dones(t *testing.T) (order []spool.Seq, by map[spool.Seq]spool.Done) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	by = make(map[spool.Seq]spool.Done)
	for _, e := range m.events {
		if e.Kind != spool.KindDone {
			continue
		}
		var d spool.Done
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		if _, ok := by[e.Turn]; ok {
			t.Errorf("turn %d has two done events", e.Turn)
		}
		order, by[e.Turn] = append(order, e.Turn), d
	}
	return order, by
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

type queue = Queue[string, string]

func open(o Options[string, string]) (*queue, *memory) {
	m := new(memory)
	o.Append = m.append
	return New(o), m
}

func accept(t *testing.T, q *queue, m *memory, id string) *Turn[string] {
	t.Helper()
	turn, err := q.Accept(m.input(id), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func TestQueueOrder(t *testing.T) {
	q, m := open(Options[string, string]{})
	for _, id := range []string{"a", "b", "c"} {
		accept(t, q, m, id)
	}
	for _, id := range []string{"a", "b", "c"} {
		turn := q.Next()
		if turn == nil || turn.ID != id || turn.Value != id || q.Running() != turn {
			t.Fatalf("next is %+v, want %s", turn, id)
		}
		if q.Next() != nil {
			t.Error("two turns run at once")
		}
		if !q.Finish(turn, spool.Done{Outcome: spool.TurnOK}) || q.Finish(turn, spool.Done{Outcome: spool.TurnError}) {
			t.Error("a turn ends once")
		}
	}
	if q.Next() != nil || q.Busy() || q.Len() != 0 {
		t.Error("something is left")
	}
	order, by := m.dones(t)
	if !slices.Equal(order, []spool.Seq{1, 2, 3}) || by[1].ID != "a" || by[1].Outcome != spool.TurnOK {
		t.Errorf("done events %v: %+v", order, by)
	}
}

// A turn that arrives after the end of another is in the log is not dropped with
// the turns that waited before.
func TestDropThrough(t *testing.T) {
	q, m := open(Options[string, string]{})
	crashed := accept(t, q, m, "crashed")
	waiting := accept(t, q, m, "waiting")
	q.Next()
	last := q.Latest()
	q.Finish(crashed, spool.Done{Outcome: spool.TurnCrashed})
	next := accept(t, q, m, "next")
	q.DropThrough(last, spool.Done{Outcome: spool.TurnKilled})
	if order, _ := m.dones(t); !slices.Equal(order, []spool.Seq{crashed.Seq, waiting.Seq}) {
		t.Errorf("done events of %v", order)
	}
	if q.Next() != next {
		t.Error("the turn that arrived last does not run")
	}
}

// TestMoves walks the table: each state is reached, and whatever is not in the
// table does nothing.
func TestMoves(t *testing.T) {
	reach := map[State]func(q *queue, turn *Turn[string]){
		Queued:  func(*queue, *Turn[string]) {},
		Running: func(q *queue, _ *Turn[string]) { q.Next() },
		Stopping: func(q *queue, turn *Turn[string]) {
			q.Next()
			turn.Stop(Reason{By: "first"})
		},
		Over: func(q *queue, turn *Turn[string]) { q.Finish(turn, spool.Done{Outcome: spool.TurnOK}) },
	}
	try := map[State]func(q *queue, turn *Turn[string]) bool{
		Running:  func(q *queue, turn *Turn[string]) bool { return q.Next() == turn },
		Stopping: func(_ *queue, turn *Turn[string]) bool { return turn.Stop(Reason{By: "second"}) },
		Over: func(q *queue, turn *Turn[string]) bool {
			return q.Finish(turn, spool.Done{Outcome: spool.TurnError})
		},
	}
	for from := range moves {
		for to, move := range try {
			q, m := open(Options[string, string]{})
			turn := accept(t, q, m, "a")
			reach[State(from)](q, turn)
			allowed := slices.Contains(moves[from], to)
			if got := move(q, turn); got != allowed {
				t.Errorf("from %v to %v: %v, want %v", State(from), to, got, allowed)
			}
			want := State(from)
			if allowed {
				want = to
			}
			if got := turn.State(); got != want {
				t.Errorf("from %v to %v: the turn is %v", State(from), to, got)
			}
			select {
			case <-turn.Stopping():
				if r, ok := turn.Reason(); !ok || r.By == "" || r.At.IsZero() {
					t.Errorf("reason %+v", r)
				}
			default:
				if _, ok := turn.Reason(); ok || turn.State() == Stopping {
					t.Errorf("from %v to %v: Stopping is not closed", State(from), to)
				}
			}
		}
	}
}

func TestReason(t *testing.T) {
	q, m := open(Options[string, string]{})
	turn := accept(t, q, m, "a")
	turn.Override(Reason{By: "nothing"})
	q.Next()
	if _, ok := turn.Reason(); ok {
		t.Error("a turn that was not stopped has a reason")
	}
	turn.Stop(Reason{By: "timeout", Outcome: spool.TurnTimeout})
	turn.Stop(Reason{By: "interrupt"})
	if r, _ := turn.Reason(); r.By != "timeout" || r.Outcome != spool.TurnTimeout {
		t.Errorf("reason %+v", r)
	}
	turn.Override(Reason{By: "stop", Outcome: spool.TurnCancelled})
	if r, _ := turn.Reason(); r.By != "stop" || r.At.IsZero() {
		t.Errorf("reason %+v", r)
	}
}

func TestControl(t *testing.T) {
	ends := []spool.Control{
		{Op: spool.ControlInterrupt}, {Op: spool.ControlStop}, {Op: spool.ControlKill}, {Op: spool.ControlRestart},
		{Op: spool.ControlSignal, Signal: "SIGTERM"}, {Op: spool.ControlSignal, Signal: "int"}, {Op: spool.ControlSignal, Signal: "9"},
	}
	outcomes := []spool.TurnOutcome{
		spool.TurnInterrupted, spool.TurnCancelled, spool.TurnKilled, spool.TurnKilled,
		spool.TurnCancelled, spool.TurnInterrupted, spool.TurnKilled,
	}
	others := []spool.Control{{Op: spool.ControlResize}, {Op: spool.ControlSignal, Signal: "SIGUSR1"}}
	for i, c := range append(slices.Clone(ends), others...) {
		q, m := open(Options[string, string]{Complete: func(_ *Turn[string], d *spool.Done) { d.Resume = "seen" }})
		over, runs, waits := accept(t, q, m, "over"), accept(t, q, m, "runs"), accept(t, q, m, "waits")
		q.Next()
		q.Finish(over, spool.Done{Outcome: spool.TurnOK})
		q.Next()

		c.Turn = over.Seq
		if effect, _ := q.Control(c); effect != None {
			t.Errorf("%+v of a turn that is over: effect %d", c, effect)
		}
		c.Turn = runs.Seq
		if effect, turn := q.Control(c); effect != OnTurn || turn != runs {
			t.Errorf("%+v of the turn that runs: effect %d on %v", c, effect, turn)
		}
		c.Turn = 0
		want := OnRun
		if c.Op == spool.ControlInterrupt {
			want = OnTurn
		}
		if effect, turn := q.Control(c); effect != want || turn != runs {
			t.Errorf("%+v: effect %d on %v", c, effect, turn)
		}
		if _, by := m.dones(t); len(by) != 1 {
			t.Errorf("%+v ended another turn: %+v", c, by)
		}
		c.Turn = waits.Seq
		if effect, _ := q.Control(c); effect != None {
			t.Errorf("%+v of a turn that waits: effect %d", c, effect)
		}
		next := m.input("comes")
		c.Turn = next.Seq
		if effect, _ := q.Control(c); effect != None {
			t.Errorf("%+v of a turn to come: effect %d", c, effect)
		}
		comes, err := q.Accept(next, "comes", 0)
		if err != nil {
			t.Fatal(err)
		}
		_, by := m.dones(t)
		for _, turn := range []*Turn[string]{waits, comes} {
			d, over := by[turn.Seq]
			if i >= len(ends) {
				if over {
					t.Errorf("%+v ended %s: %+v", c, turn.ID, d)
				}
				continue
			}
			if !over || turn.State() != Over || d.Outcome != outcomes[i] || d.ErrorClass != ClassNotRun || d.EndedBy == "" || d.ID != turn.ID || d.Resume != "seen" {
				t.Errorf("%+v of %s, which does not run: %+v", c, turn.ID, d)
			}
		}
		if turn := accept(t, q, m, "later"); turn.State() != Queued {
			t.Errorf("%+v ended a turn that it did not name", c)
		}
	}
}

// TestInterruptOfNothing checks that an interrupt which names no turn meets the
// one that is about to begin, and does not wait for one.
func TestInterruptOfNothing(t *testing.T) {
	q, m := open(Options[string, string]{})
	if effect, _ := q.Control(spool.Control{Op: spool.ControlInterrupt}); effect != None {
		t.Errorf("effect %d", effect)
	}
	one, two := accept(t, q, m, "one"), accept(t, q, m, "two")
	if effect, _ := q.Control(spool.Control{Op: spool.ControlInterrupt}); effect != None {
		t.Errorf("effect %d", effect)
	}
	if one.State() != Over || two.State() != Queued || q.Next() != two {
		t.Errorf("one is %v, two is %v", one.State(), two.State())
	}
}

func TestEarlyIsBounded(t *testing.T) {
	q, m := open(Options[string, string]{})
	for i := range 2 * maxEarly {
		q.Control(spool.Control{Op: spool.ControlKill, Turn: spool.Seq(1000 + i)})
	}
	if len(q.early) != maxEarly {
		t.Errorf("%d are kept", len(q.early))
	}
	for range 1500 {
		m.input("other")
	}
	if turn := accept(t, q, m, "a"); turn.State() != Over || len(q.early) >= maxEarly {
		t.Errorf("turn %d is %v; %d are kept", turn.Seq, turn.State(), len(q.early))
	}
}

func TestTakes(t *testing.T) {
	q, m := open(Options[string, string]{Max: 2})
	accept(t, q, m, "a")
	accept(t, q, m, "b")
	if err := q.Takes(); !errors.Is(err, spool.ErrBusy) {
		t.Error(err)
	}
	first := q.Next()
	if err := q.Takes(); err != nil {
		t.Error(err)
	}
	q.Shut()
	if err := q.Takes(); !errors.Is(err, spool.ErrInputClosed) {
		t.Error(err)
	}
	if _, err := q.Accept(m.input("c"), "c", 0); !errors.Is(err, spool.ErrInputClosed) {
		t.Error(err)
	}
	q.Drop(spool.Done{Outcome: spool.TurnKilled, Error: "the run ended"})
	q.Finish(first, spool.Done{Outcome: spool.TurnOK})
	if order, by := m.dones(t); !slices.Equal(order, []spool.Seq{2, 1}) || by[2].Outcome != spool.TurnKilled {
		t.Errorf("%v %+v", order, by)
	}
}

func TestAsks(t *testing.T) {
	q, m := open(Options[string, string]{})
	turn := accept(t, q, m, "a")
	of := spool.Event{Turn: turn.Seq, Bytes: []byte("raw")}
	if _, _, err := q.Ask(of, spool.Ask{Kind: "input"}, "early"); !errors.Is(err, ErrOver) {
		t.Errorf("a turn that does not run asks: %v", err)
	}
	q.Next()
	ask := func(key string) spool.Seq {
		t.Helper()
		seq, decided, err := q.Ask(of, spool.Ask{Kind: "input"}, key)
		if err != nil || decided != nil {
			t.Fatal(decided, err)
		}
		return seq
	}
	one, two, three, four := ask("one"), ask("two"), ask("three"), ask("four")
	if e := m.events[one-1]; e.Kind != spool.KindAsk || e.Turn != turn.Seq || string(e.Bytes) != "raw" {
		t.Errorf("event %+v", e)
	}

	a, _ := m.answer(one)
	if key, ok := q.Answer(a); !ok || key != "one" {
		t.Errorf("answer to %q: %v", key, ok)
	}
	if _, ok := q.Answer(a); ok {
		t.Error("a second answer passed")
	}

	if seq, ok := q.FindAsk(func(key string) bool { return key == "two" }); !ok || seq != two {
		t.Errorf("found %d", seq)
	}
	if !q.CloseAsk(two, spool.Notice{Text: "not needed"}) || q.CloseAsk(two, spool.Notice{}) {
		t.Error("an ask closes once")
	}
	if _, ok := m.answer(two); ok {
		t.Error("an answer to a closed ask was logged")
	}

	// An answer that was logged first counts, though it comes later.
	a, _ = m.answer(three)
	if q.CloseAsk(three, spool.Notice{}) {
		t.Error("an ask that was answered closed")
	}
	if key, ok := q.Answer(a); !ok || key != "three" || q.Err() != nil {
		t.Errorf("answer to %q: %v, %v", key, ok, q.Err())
	}

	between, _, err := q.Ask(spool.Event{}, spool.Ask{Kind: "input"}, "of no turn")
	if err != nil || q.Asks() != 2 {
		t.Fatal(q.Asks(), err)
	}
	q.Finish(turn, spool.Done{Outcome: spool.TurnOK})
	if _, ok := m.answer(four); ok || q.Asks() != 1 {
		t.Errorf("the turn is over, and %d asks are open", q.Asks())
	}
	if _, _, err := q.Ask(of, spool.Ask{Kind: "input"}, "late"); !errors.Is(err, ErrOver) {
		t.Errorf("a turn that is over asks: %v", err)
	}
	q.CloseAsks(spool.Notice{Text: "gone"})
	if _, ok := m.answer(between); ok || q.Asks() != 0 {
		t.Error("an ask of no turn stays open")
	}
}

// TestPolicyFirst checks that nobody can answer what a policy decided: the ask
// and its answer are one event.
func TestPolicyFirst(t *testing.T) {
	q, m := open(Options[string, string]{Decide: func(a spool.Ask) (spool.Answer, bool) {
		return spool.Answer{Data: encode("deny"), By: "policy: rule 1"}, a.Name == "command"
	}})
	turn := accept(t, q, m, "a")
	q.Next()
	seq, decided, err := q.Ask(spool.Event{Turn: turn.Seq}, spool.Ask{Kind: agent.AskApproval, Name: "command"}, "x")
	if err != nil || decided == nil || decided.Ask != seq || string(decided.Data) != `"deny"` {
		t.Fatal(decided, err)
	}
	if _, ok := m.answer(seq); ok || q.Asks() != 0 {
		t.Error("a decided ask was answered")
	}
	if _, ok := q.Answer(spool.Answer{Ask: seq}); ok {
		t.Error("a decided ask was answered")
	}
	var a spool.Ask
	if err := json.Unmarshal(m.events[seq-1].Data, &a); err != nil || a.Answer == nil || a.Answer.By != "policy: rule 1" {
		t.Errorf("%s %v", m.events[seq-1].Data, err)
	}
	if seq, decided, err := q.Ask(spool.Event{Turn: turn.Seq}, spool.Ask{Kind: agent.AskApproval}, "y"); err != nil || decided != nil {
		t.Error(decided, err)
	} else if _, ok := m.answer(seq); !ok {
		t.Error("an ask that the policy left open was not answered")
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := open(Options[string, string]{AskStopsClock: true})
		if _, err := q.Accept(m.input("a"), "a", time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // it does not run yet
		if at := q.Deadline(); !at.IsZero() {
			t.Errorf("deadline %v", at)
		}
		turn := q.Next()
		begun := time.Now()
		wantDeadline := func(after time.Duration) {
			t.Helper()
			if at := q.Deadline(); !at.Equal(begun.Add(after)) {
				t.Errorf("deadline after %v, want %v", at.Sub(begun), after)
			}
		}
		wantDeadline(time.Minute)

		// The clock stands still while an ask is open.
		time.Sleep(10 * time.Second)
		seq, _, err := q.Ask(spool.Event{Turn: turn.Seq}, spool.Ask{Deadline: begun.Add(2 * time.Minute)}, "k")
		if err != nil {
			t.Fatal(err)
		}
		wantDeadline(2 * time.Minute)
		time.Sleep(2 * time.Minute)
		if q.TimedOut(time.Now()) != nil {
			t.Error("a turn that waits for an answer timed out")
		}
		list := q.Expired(time.Now())
		if len(list) != 1 || list[0] != (Asked[string]{seq, "k"}) || !q.CloseAsk(seq, spool.Notice{By: "deadline"}) {
			t.Errorf("expired %+v", list)
		}
		wantDeadline(3 * time.Minute)

		turn.Pause()
		turn.Pause()
		time.Sleep(time.Minute)
		turn.Resume()
		if at := q.Deadline(); !at.IsZero() {
			t.Errorf("deadline %v of a turn whose clock stands still", at)
		}
		turn.Resume()
		turn.Resume() // one too many
		wantDeadline(4 * time.Minute)
		time.Sleep(time.Until(q.Deadline()))
		if q.TimedOut(time.Now()) != turn {
			t.Error("it did not time out")
		}
		turn.Stop(Reason{By: "timeout", Outcome: spool.TurnTimeout})
		if q.TimedOut(time.Now()) != nil || !q.Deadline().IsZero() {
			t.Error("a turn that was asked to end times out")
		}
		q.Finish(turn, spool.Done{Outcome: spool.TurnTimeout})
		if _, by := m.dones(t); by[turn.Seq].DurationMs != time.Since(begun).Milliseconds() {
			t.Errorf("%+v", by)
		}
	})
}

// TestExpiredAfterAnswer checks that an ask whose answer was logged in time does
// not expire again and again while the answer is on its way.
func TestExpiredAfterAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := open(Options[string, string]{})
		seq, _, err := q.Ask(spool.Event{}, spool.Ask{Deadline: time.Now().Add(time.Second)}, "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a, _ := m.answer(seq)
		if len(q.Expired(time.Now())) != 1 || q.CloseAsk(seq, spool.Notice{}) {
			t.Error("the ask closed")
		}
		if len(q.Expired(time.Now())) != 0 || !q.Deadline().IsZero() {
			t.Error("it expires again")
		}
		if _, ok := q.Answer(a); !ok {
			t.Error("the answer was lost")
		}
	})
}

func TestLogTakesNoMore(t *testing.T) {
	q, m := open(Options[string, string]{})
	one, two := accept(t, q, m, "one"), accept(t, q, m, "two")
	q.Next()
	m.full = errors.New("disk full")
	if _, _, err := q.Ask(spool.Event{Turn: one.Seq}, spool.Ask{}, "k"); !errors.Is(err, m.full) || q.Asks() != 0 {
		t.Error(err)
	}
	if !errors.Is(q.Err(), m.full) {
		t.Error(q.Err())
	}
	m.full = nil
	q.Finish(one, spool.Done{Outcome: spool.TurnOK})
	q.Drop(spool.Done{Outcome: spool.TurnKilled})
	if one.State() != Over || two.State() != Over || len(m.events) != 2 {
		t.Errorf("%v %v, %d events", one.State(), two.State(), len(m.events))
	}
}

// TestCloseAsksForgets checks that an answer that was logged just before what
// asked was gone reaches nobody.
func TestCloseAsksForgets(t *testing.T) {
	q, m := open(Options[string, string]{})
	seq, _, err := q.Ask(spool.Event{}, spool.Ask{}, "k")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := m.answer(seq)
	q.CloseAsks(spool.Notice{Text: "gone"})
	if _, ok := q.Answer(a); ok || q.Asks() != 0 {
		t.Error("the answer passed")
	}
}
