package talk

// The codes of the notices this engine writes.
const (
	NoticeUnknown     = "unknown_event"    // a line the translator does not know; its JSON is in Data
	NoticeUnparsed    = "unparsed"         // a line that is no JSON; its bytes are in Bytes
	NoticeLineTooLong = "line_too_long"    // a line beyond MaxLine was passed over
	NoticeWarning     = "agent_warning"    // the agent warns
	NoticeDenied      = "denied"           // the agent was not allowed something
	NoticeStalled     = "stalled"          // silent for too long
	NoticeOutputLimit = "output_limit"     // so is the run's part of the log
	NoticeBudget      = "budget"           // the budget is used up
	NoticeTimeout     = "timeout"          // the turn or the run took too long
	NoticeLingering   = "lingering"        // the agent did not exit after its result
	NoticeTreeKill    = "tree_kill"        // processes it left behind were ended
	NoticeKillFailed  = "kill_failed"      // some of them may be alive
	NoticeWaiting     = "session_busy"     // another run has the session
	NoticeSession     = "session_changed"  // the agent goes on in another session than asked
	NoticeOutputEnd   = "output_closed"    // it closed its output and kept running
	NoticeNotSteered  = "steer_impossible" // the prompt waits instead
)
