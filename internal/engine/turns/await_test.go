package turns

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
)

// TestAwait checks that an ask of something outside of the engine is of the turn that
// runs, stops its clock, and ends in one way.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := open(Options[string, string]{AskStopsClock: true, Decide: func(a spool.Ask) (spool.Answer, bool) {
			return spool.Answer{Data: encode("allow"), By: "policy"}, a.Name == "decided"
		}})
		type reply struct {
			data string
			err  error
		}
		await := func(ctx context.Context, name string) chan reply {
			replies := make(chan reply, 1)
			go func() {
				a, err := q.Await(ctx, spool.Ask{Kind: "network", Name: name, Deadline: time.Now().Add(time.Second)})
				replies <- reply{string(a.Data), err}
			}()
			synctest.Wait()
			return replies
		}
		last := func() spool.Event { return m.events[len(m.events)-1] }
		closes := func(e spool.Event, ask spool.Seq) bool { return e.ClosesAsk(ask, 0) }

		between := await(t.Context(), "between") // no turn runs
		if e := last(); e.Kind != spool.KindAsk || e.Turn != 0 || q.Asks() != 1 {
			t.Errorf("event %+v, %d asks", e, q.Asks())
		}
		a, _ := m.answer(last().Seq)
		if key, ok := q.Answer(a); ok {
			t.Errorf("the engine gets the answer to %q", key)
		}
		if r := <-between; r.err != nil || r.data != string(a.Data) {
			t.Errorf("reply %+v", r)
		}

		turn := accept(t, q, m, "a")
		turn.limit = time.Minute
		q.Next()
		begun := time.Now()
		given, cancel := context.WithCancel(t.Context())
		up := await(given, "given up")
		ask := last()
		if ask.Turn != turn.Seq || len(q.Expired(time.Now().Add(time.Hour))) != 0 {
			t.Errorf("event %+v, expired %v", ask, q.Expired(time.Now().Add(time.Hour)))
		}
		if _, ok := q.FindAsk(func(string) bool { return true }); ok {
			t.Error("the engine finds it")
		}
		time.Sleep(time.Hour)
		if q.TimedOut(time.Now()) != nil {
			t.Error("a turn that waits for an answer timed out")
		}
		cancel()
		if r := <-up; !errors.Is(r.err, context.Canceled) || !closes(last(), ask.Seq) || q.Asks() != 0 {
			t.Errorf("reply %+v, then %+v", r, last())
		}
		if at := q.Deadline(); !at.Equal(begun.Add(time.Hour+time.Minute)) || !q.Answered().Equal(begun.Add(time.Hour)) {
			t.Errorf("deadline after %v, answered %v", at.Sub(begun), q.Answered())
		}

		if r := <-await(t.Context(), "decided"); r.err != nil || r.data != `"allow"` || q.Asks() != 0 || !strings.Contains(string(last().Data), "policy") {
			t.Errorf("reply %+v", r)
		}

		over := await(t.Context(), "of the turn")
		q.Finish(turn, spool.Done{Outcome: spool.TurnOK})
		if r := <-over; !errors.Is(r.err, ErrOver) {
			t.Errorf("reply %+v", r)
		}
		gone := await(t.Context(), "of the run")
		q.CloseAsks(spool.Notice{Text: "gone"})
		if r := <-gone; !errors.Is(r.err, ErrOver) || q.Asks() != 0 {
			t.Errorf("reply %+v", r)
		}
	})
}
