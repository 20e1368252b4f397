package turns

import (
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// TestHammer has many goroutines send, control, answer and close while one
// executes turns, and then reads the log: each turn ended exactly once, at most
// one ran at a time and in order, each ask was closed exactly once and before or
// by the end of its turn, and every answer that was logged reached the engine
// unless its turn ended first.
func TestHammer(t *testing.T) {
	const inputs = 2000
	q, m := open(Options[string, string]{
		AskStopsClock: true,
		Decide: func(a spool.Ask) (spool.Answer, bool) {
			return spool.Answer{Data: encode("allow"), By: "policy"}, a.Name == "decided"
		},
	})
	work := make(chan struct{}, 1)
	wake := func() {
		select {
		case work <- struct{}{}:
		default:
		}
	}
	var sent, last atomic.Uint64 // inputs sent; the newest input
	var answered sync.Map        // asks whose answer reached the engine
	ended := make(chan struct{})
	var others sync.WaitGroup

	for range 3 { // controls, most of them for the newest turns
		others.Go(func() {
			ops := []spool.ControlOp{spool.ControlInterrupt, spool.ControlStop, spool.ControlKill, spool.ControlRestart}
			for {
				select {
				case <-ended:
					return
				default:
				}
				c := spool.Control{Op: ops[rand.IntN(len(ops))]}
				if rand.IntN(4) > 0 {
					c.Turn = spool.Seq(last.Load()) + spool.Seq(rand.IntN(6))
				}
				if effect, turn := q.Control(c); effect == OnTurn {
					turn.Stop(Reason{By: string(c.Op), Outcome: spool.TurnInterrupted})
				}
				time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
			}
		})
	}
	for range 2 { // people who answer whatever they see
		others.Go(func() {
			for next := 0; ; {
				m.mu.Lock()
				var ask spool.Seq
				for ; next < len(m.events) && ask == 0; next++ {
					if m.events[next].Kind == spool.KindAsk {
						ask = m.events[next].Seq
					}
				}
				m.mu.Unlock()
				if ask != 0 {
					if a, ok := m.answer(ask); ok {
						if _, ok := q.Answer(a); ok {
							answered.Store(ask, true)
						}
					}
					continue
				}
				select {
				case <-ended:
					return
				default:
					time.Sleep(10 * time.Microsecond)
				}
			}
		})
	}
	others.Go(func() { // the host, which sends in order
		for range inputs {
			in := m.input("")
			last.Store(uint64(in.Seq))
			if _, err := q.Accept(in, "", time.Hour); err != nil {
				t.Error(err)
			}
			sent.Add(1)
			wake()
		}
		q.Shut()
		wake()
	})

	var order []spool.Seq
	for { // the engine
		turn := q.Next()
		if turn == nil {
			if sent.Load() == inputs && !q.Busy() {
				break
			}
			select {
			case <-work:
			case <-time.After(time.Millisecond):
			}
			continue
		}
		order = append(order, turn.Seq)
		for range rand.IntN(3) {
			name := "open"
			if rand.IntN(2) == 0 {
				name = "decided"
			}
			seq, decided, err := q.Ask(spool.Event{Turn: turn.Seq}, spool.Ask{Name: name}, "")
			if err != nil || (decided != nil) != (name == "decided") {
				t.Error(name, decided, err)
			}
			switch rand.IntN(3) {
			case 0:
				q.CloseAsk(seq, spool.Notice{Text: "withdrawn"})
			case 1:
				time.Sleep(20 * time.Microsecond)
			}
		}
		d := spool.Done{Outcome: spool.TurnOK}
		if r, ok := turn.Reason(); ok {
			d.Outcome = r.Outcome
		}
		if !q.Finish(turn, d) {
			t.Errorf("turn %d was finished by another goroutine", turn.Seq)
		}
	}
	close(ended)
	others.Wait()

	for i := 1; i < len(order); i++ {
		if order[i] <= order[i-1] {
			t.Errorf("turn %d ran after %d", order[i], order[i-1])
		}
	}
	_, dones := m.dones(t)
	if len(dones) != inputs || len(order) == 0 || len(order) == inputs {
		t.Errorf("%d of %d turns are done; %d ran", len(dones), inputs, len(order))
	}
	check(t, m.events, &answered)
}

// check reads the log for the asks.
func check(t *testing.T, events []spool.Event, answered *sync.Map) {
	t.Helper()
	open := make(map[spool.Seq]spool.Seq) // the turn of each
	late := make(map[spool.Seq]spool.Seq) // answered in the log; the turn of each
	over := make(map[spool.Seq]bool)
	decided, closed, replied := 0, 0, 0
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case spool.KindAsk:
			if over[e.Turn] {
				t.Errorf("turn %d asks after its end", e.Turn)
			}
			if !e.OpensAsk() {
				decided++
				continue
			}
			open[e.Seq] = e.Turn
		case spool.KindNotice:
			var n spool.Notice
			if err := json.Unmarshal(e.Data, &n); err != nil {
				t.Fatal(err)
			}
			if _, ok := open[n.Ask]; !ok {
				t.Errorf("ask %d closed twice, or after its turn", n.Ask)
			}
			delete(open, n.Ask)
			closed++
		case spool.KindInput:
			for ask, turn := range open {
				if e.ClosesAsk(ask, turn) {
					delete(open, ask)
					late[ask] = turn
					replied++
				}
			}
		case spool.KindDone:
			over[e.Turn] = true
			for ask, turn := range open {
				if turn == e.Turn {
					delete(open, ask)
				}
			}
		}
	}
	if len(open) > 0 {
		t.Errorf("asks %v were never closed", open)
	}
	missed := 0
	for ask := range late {
		if _, ok := answered.Load(ask); !ok {
			missed++ // its turn ended first
		}
	}
	if decided == 0 || closed == 0 || replied == 0 || missed == replied {
		t.Errorf("%d asks were decided, %d closed, %d answered and %d of those too late: the hammer missed something", decided, closed, replied, missed)
	}
}
