package talk

// The codes of the notices of the agent engine.
const (
	NoticeUnknown     = "unknown_event"    // a line that is not known; its JSON is in Data
	NoticeUnparsed    = "unparsed"         // a line that is not JSON; it is in Bytes
	NoticeLineTooLong = "line_too_long"    // a line was skipped because of its length
	NoticeWarning     = "agent_warning"    // the agent warns
	NoticeDenied      = "denied"           // an action of the agent was not allowed
	NoticeStalled     = "stalled"          // the agent was silent for too long
	NoticeOutputLimit = "output_limit"     // the run wrote more to its log than it may
	NoticeBudget      = "budget"           // the budget is used up
	NoticeTimeout     = "timeout"          // the turn or the run took too long
	NoticeLingering   = "lingering"        // the agent did not exit after its result
	NoticeTreeKill    = "tree_kill"        // processes that the agent left behind were ended
	NoticeKillFailed  = "kill_failed"      // some of its processes may be alive
	NoticeWaiting     = "session_busy"     // the turn waits for another run in the same session
	NoticeSession     = "session_changed"  // the agent goes on in another session than asked
	NoticeOutputEnd   = "output_closed"    // the agent closed its output and kept running
	NoticeNotSteered  = "steer_impossible" // the prompt could not join the turn, and waits
	NoticeIllegal     = "illegal_state"    // the conversation took a step that is not in its table; the step is in Data
)
