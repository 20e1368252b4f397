package turns

import (
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// Effect says what a control acts on.
type Effect uint8

// The effects of a control.
const (
	// None: nothing is left to do. The turn is over, was cancelled just now,
	// or has not arrived, and the control is kept for it.
	None Effect = iota
	// OnTurn: act on the turn that runs, and on nothing else.
	OnTurn
	// OnRun: act on the run as a whole.
	OnRun
)

// maxEarly bounds the controls that are kept for turns to come.
const maxEarly = 1024

// Control finds what a control acts on, and does what can be done without the
// engine. The turn that it returns is the one that runs, or nil.
//
//	              no turn named         waits        runs     over   not arrived
//	interrupt     the one that runs,    cancelled    OnTurn   None   kept
//	              else the next one
//	stop, kill    OnRun                 cancelled    OnTurn   None   kept
//	restart       OnRun                 cancelled    OnTurn   None   kept
//	signal        OnRun                 as below     OnTurn   None   as below
//	others        OnRun                 None         OnTurn   None   None
//
// A signal that ends a process by default (SIGHUP, SIGINT, SIGQUIT, SIGKILL,
// SIGTERM) cancels a turn that waits and is kept for one that has not arrived.
// Any other has no process to go to.
func (q *Queue[T, A]) Control(c spool.Control) (Effect, *Turn[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.running
	if c.Turn == 0 {
		switch {
		case c.Op != spool.ControlInterrupt:
			return OnRun, t
		case t != nil:
			return OnTurn, t
		case len(q.queued) > 0: // it is about to begin
			q.finish(q.queued[0], interrupted.done())
		}
		return None, nil
	}
	if t != nil && t.Seq == c.Turn {
		return OnTurn, t
	}
	cancel, ok := cancellationOf(c)
	if !ok {
		return None, t
	}
	for _, waits := range q.queued {
		if waits.Seq == c.Turn {
			q.finish(waits, cancel.done())
			return None, t
		}
	}
	if c.Turn > q.latest && len(q.early) < maxEarly {
		q.early[c.Turn] = cancel
	}
	return None, t
}

// cancellation is what ends a turn before it began.
type cancellation struct {
	outcome spool.TurnOutcome
	by      string
	text    string
}

var (
	interrupted = cancellation{spool.TurnInterrupted, "interrupt", "it was interrupted before it began"}
	stopped     = cancellation{spool.TurnCancelled, "stop", "it was stopped before it began"}
	killed      = cancellation{spool.TurnKilled, "kill", "it was killed before it began"}
	restarted   = cancellation{spool.TurnKilled, "restart", "the run was restarted before it began"}
)

// cancellationOf returns what a control means for a turn that does not run. It
// reports false if it means nothing.
func cancellationOf(c spool.Control) (cancellation, bool) {
	switch c.Op {
	case spool.ControlInterrupt:
		return interrupted, true
	case spool.ControlStop:
		return stopped, true
	case spool.ControlKill:
		return killed, true
	case spool.ControlRestart:
		return restarted, true
	case spool.ControlSignal:
		switch strings.TrimPrefix(strings.ToUpper(c.Signal), "SIG") {
		case "INT", "2":
			return interrupted, true
		case "HUP", "1", "QUIT", "3", "TERM", "15":
			return stopped, true
		case "KILL", "9":
			return killed, true
		}
	}
	return cancellation{}, false
}

// ClassNotRun is the [spool.Done.ErrorClass] of a turn that never began.
const ClassNotRun = engine.ClassNotRun

func (c cancellation) done() spool.Done {
	return spool.Done{Outcome: c.outcome, EndedBy: c.by, Error: "the turn was not run: " + c.text, ErrorClass: ClassNotRun}
}
