package agents

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// state is where one of the three parts of a session is: the run, the turn that
// runs, or the process of the agent.
type state string

// The states of a session.
const (
	runOpen   state = "run open"   // it begins turns
	runEnding state = "run ending" // it begins no more turns
	runEnded  state = "run ended"  // nothing but its outcome is left to write

	turnNone     state = "no turn"
	turnLocking  state = "turn locking"  // it waits for the lock of its session
	turnReady    state = "turn ready"    // the agent can be given the prompt
	turnTalking  state = "turn talking"  // the agent has the prompt
	turnHeld     state = "turn held"     // as talking or answered, but its events wait for the lock
	turnAnswered state = "turn answered" // the agent told the result

	processNone     state = "no process"
	processAlive    state = "process alive"
	processStopping state = "process stopping" // it was asked to end
	processExited   state = "process exited"   // its output may not have ended
)

// transitions holds every way from one state to another.
var transitions = map[state][]state{
	runOpen:   {runEnding},
	runEnding: {runEnded},
	runEnded:  {},

	turnNone: {
		turnLocking, // the run has a session that others may use
		turnReady,   // the session is new, or its lock was kept
	},
	turnLocking: {
		turnReady, // the lock was taken
		turnNone,  // the turn was stopped, or the lock cannot be taken
	},
	turnReady: {
		turnTalking, // the agent was given the prompt
		turnNone,    // the turn was stopped, the budget was used up, or no process started
	},
	turnTalking: {
		turnHeld,     // the agent told a session that is locked by another run
		turnAnswered, // the agent told the result
		turnNone,     // the process exited without a result
	},
	turnHeld: {
		turnTalking,  // the lock was taken, and there is no result
		turnAnswered, // the lock was taken, or given up, and there is a result
	},
	turnAnswered: {
		turnHeld, // the agent told its session after the result
		turnNone, // the process exited, or waits for the next prompt
	},

	processNone: {processAlive},
	processAlive: {
		processStopping, // its turn is stopped, or the process is not needed any more
		processExited,
	},
	processStopping: {
		processAlive,  // the turn ended, and the process waits for the next prompt
		processExited, // it was reaped, or given up
	},
	processExited: {processNone},
}

// onTransition sees every transition. A test sets it.
var onTransition = func(from, to state, legal bool) {}

// move changes a state. A transition that is not in the table is a mistake in
// this package: the log says so, and the session goes on.
func (s *session) move(part *state, to state) {
	from := *part
	legal := slices.Contains(transitions[from], to)
	onTransition(from, to, legal)
	*part = to
	if legal {
		return
	}
	detail, err := json.Marshal(map[string]state{"from": from, "to": to, "run": s.state.run, "turn": s.state.turn, "process": s.state.process})
	if err != nil { // strings always encode
		detail = nil
	}
	s.between.Put(spool.KindNotice, spool.Notice{Level: "error", Code: talk.NoticeIllegal, Data: detail,
		Text: fmt.Sprintf("a mistake in Spool: the conversation went from %q to %q", from, to)}, nil)
}

// in reports whether the state is one of several.
func (s state) in(list ...state) bool { return slices.Contains(list, s) }
