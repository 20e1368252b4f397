package agent

import "github.com/spool-run/spool"

// Engine is the engine that runs agents, in [spool.Spec.Engine].
const Engine = "agent"

// The kinds of event that agents have beside those of package spool. Their
// data are the types of the same names.
const (
	KindAction    spool.Kind = "action"
	KindMessage   spool.Kind = "message"
	KindReasoning spool.Kind = "reasoning"
	KindPlan      spool.Kind = "plan"
	KindUsage     spool.Kind = "usage"
	KindRetry     spool.Kind = "retry"
)

// The kinds of ask that agents have.
const (
	AskApproval = "approval" // may this be done? The data is an [Approval]
	AskQuestion = "question" // something only a person knows: [Questions]
)

// The outcomes that turns of agents have beside those of package spool.
const (
	TurnStalled  spool.TurnOutcome = "stalled"   // nothing was heard of it for too long
	TurnBudget   spool.TurnOutcome = "budget"    // it used up its tokens or its money
	TurnMaxTurns spool.TurnOutcome = "max_turns" // it asked the model as often as it may
)
