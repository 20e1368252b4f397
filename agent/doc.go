// Package agent is the data of coding agents: how a run of one is configured,
// what its events carry, and how its permission requests are answered. It holds
// no logic. A conversation with an agent is a run, a prompt is a turn, and every
// agent gives the same events.
//
// # Configure a run
//
// A [Config] names the agent, and [Config.Spec] makes a [spool.Spec] of it. The
// agents are [Codex], [Claude], [OpenCode] and [Pi], whose programs must be
// installed where the run is, and [ACP], which is any command that speaks the
// Agent Client Protocol. [spool.Run.Prompt] begins a turn.
//
// An agent can be talked to in two ways. In [ModeExec] every prompt is a process
// that resumes the session of the one before. In [ModeDuplex] one process takes
// prompt after prompt, can be interrupted in its own protocol, and asks for
// permission. The default is duplex where the agent has it.
//
// # Read what it does
//
// The kind of an event tells the type of its data:
//
//	started      Started     the session is known; at most once
//	message      Message     the agent said something
//	reasoning    Reasoning   the agent shows what it thinks
//	action       Action      a command, a change of files, a call of a tool
//	plan         Plan        the list of what it means to do
//	usage        Usage       tokens and money
//	retry        Retry       a request to the model failed and is made again
//	ask          spool.Ask   a question, with an Approval or Questions as data
//	notice       spool.Notice
//	done         spool.Done  how the turn ended; Usage is a Usage
//
// Every action that started is completed before its turn is done. A line of the
// agent's output that Spool does not know becomes a notice with the line kept.
// [spool.Done.ErrorClass] is one of the Class constants.
//
// # Answer permission requests
//
// An ask of kind [AskApproval] carries an [Approval]: what the agent wants
// to do. An ask of kind [AskQuestion] carries [Questions]. Answer either
// with a [Decision] and [spool.Run.Reply]. The first answer counts.
//
//	for e, err := range turn.Events(ctx) {
//		…
//		var ask spool.Ask
//		var request agent.Approval
//		if !e.OpensAsk() || json.Unmarshal(e.Data, &ask) != nil ||
//			ask.Kind != agent.AskApproval || json.Unmarshal(ask.Data, &request) != nil {
//			continue
//		}
//		err := run.Reply(ctx, e.Seq, agent.Decision{Choice: agent.Allow})
//		…
//	}
//
// The [Policy] of a config decides first. An ask that it decides is never open:
// the ask event carries the answer. An ask without an answer is denied at its
// deadline.
//
// # Resume a session
//
// [Started.Resume] and [spool.Done.Resume] are the id of the session in the
// agent's own store. A later run goes on with it by [Config.Resume], or in a copy
// with [Config.Fork]. Two runs never work in one session at once: the second
// waits.
package agent
