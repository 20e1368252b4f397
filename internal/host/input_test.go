package host

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// slowSession takes an input when it is told to. A logged one makes its sender
// wait meanwhile, which no engine does: the moment of its delivery is long.
type slowSession struct {
	engine.Session
	take chan struct{}
}

func (s *slowSession) Takes(spool.Input) error { return nil }

func (s *slowSession) Send(ctx context.Context, _ spool.Input) error {
	select {
	case <-s.take:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put sends an input in the background and returns when it waits or is accepted.
func put(t *testing.T, q *inputQueue, in spool.Input) {
	t.Helper()
	go func() {
		if _, err := q.put(t.Context(), in); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
}

// TestInterruptComesAfterInput checks that an interrupt which names no turn
// waits until the session has the turns that were accepted before it, but not
// for standard input.
func TestInterruptComesAfterInput(t *testing.T) {
	for _, kind := range []spool.InputKind{spool.InputCell, spool.InputStdin} {
		synctest.Test(t, func(t *testing.T) {
			s := &slowSession{take: make(chan struct{})}
			q := newInputQueue(t.Context(), func(spool.Event) (spool.Seq, error) { return 1, nil })
			q.begin(s)
			defer q.end()
			put(t, q, spool.Input{Kind: kind, Bytes: []byte("x")})
			done := make(chan struct{})
			go func() {
				q.delivered(t.Context())
				close(done)
			}()
			synctest.Wait()
			select {
			case <-done:
				if kind == spool.InputCell {
					t.Error("the interrupt overtook the input")
				}
			default:
				if kind == spool.InputStdin {
					t.Error("the interrupt waits for standard input")
				}
			}
			close(s.take)
			<-done
		})
	}
}

// TestManySmallInputsWait checks that inputs of a few bytes cannot fill the
// memory: a session that accepts none of them stops the sender long before
// their bytes alone reach the limit.
func TestManySmallInputsWait(t *testing.T) {
	for _, kind := range []spool.InputKind{spool.InputCell, spool.InputStdin} {
		synctest.Test(t, func(t *testing.T) {
			q := newInputQueue(t.Context(), func(spool.Event) (spool.Seq, error) { return 1, nil })
			q.begin(&slowSession{take: make(chan struct{})})
			defer q.end()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			put(t, q, spool.Input{Kind: kind, Bytes: []byte("x")})
			sent := 1
			for ; sent < maxInputBytes; sent++ {
				if _, err := q.put(ctx, spool.Input{Kind: kind, Bytes: []byte("x")}); err != nil {
					break
				}
			}
			if want := maxInputBytes / (inputOverhead + 1); sent != want {
				t.Errorf("%s: %d inputs were accepted, want %d", kind, sent, want)
			}
		})
	}
}

// TestTurnsThatWereNotDeliveredEnd checks that the end of a run ends the turns
// whose inputs the session never got: the one that it was being given, and
// those behind it. Other inputs begin no turn.
func TestTurnsThatWereNotDeliveredEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seq spool.Seq
		q := newInputQueue(t.Context(), func(spool.Event) (spool.Seq, error) { seq++; return seq, nil })
		s := &slowSession{take: make(chan struct{}, 1)}
		q.begin(s)
		s.take <- struct{}{} // the first one is delivered
		for _, in := range []spool.Input{
			{Kind: spool.InputCell, ID: "delivered"}, {Kind: spool.InputCell, ID: "second"}, {Kind: spool.InputStdin, Bytes: []byte("x")}, {Kind: spool.InputPrompt, ID: "third"},
		} {
			put(t, q, in)
		}
		var got []spool.Done
		for i, e := range q.end() {
			var d spool.Done
			if err := json.Unmarshal(e.Data, &d); err != nil || e.Kind != spool.KindDone || e.Turn != spool.Seq(i+2) {
				t.Fatalf("%+v: %v", e, err)
			}
			got = append(got, d)
		}
		if len(got) != 2 || got[0].ID != "second" || got[1].ID != "third" || got[0].Outcome != spool.TurnKilled || got[0].ErrorClass != engine.ClassNotRun || got[0].Error == "" {
			t.Errorf("%+v", got)
		}
		if more := q.end(); len(more) > 0 {
			t.Errorf("told twice: %+v", more)
		}
	})
}
