// Package agents is the engine that runs coding agents: a conversation is a
// run, a prompt is a turn, and every agent gives the same events.
//
// Each command line tool has a file of its own, which knows its arguments and
// translates what it prints: [agent.Started], [agent.Message],
// [agent.Action] and so on. What a translator does not know becomes a notice
// with the line kept, never an error. One goroutine owns a run: it starts the
// agent's processes, reads their lines, passes prompts and answers on, watches
// the clock, and ends what has to be ended. So the order of events is that of
// the agent's output.
//
// There are two ways to talk to an agent. In exec mode each prompt is a
// process of its own, which resumes the session of the one before. In duplex
// mode one process takes prompt after prompt and can ask, be interrupted and
// be steered. Both are a conversation to this package; so is the Agent Client
// Protocol, which any number of other agents speak.
//
// How a turn ended is told by the agent's last word first, then by its exit
// status, and then by whether we asked it to stop; never by the exit status
// alone, which is wrong in both directions for today's agents.
package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// The agents this package knows by name.
const (
	Codex    = "codex"
	Claude   = "claude"
	OpenCode = "opencode"
	Pi       = "pi"
	ACP      = "acp" // any command that speaks the Agent Client Protocol
)

// Mode is how to talk to an agent.
type Mode string

// The modes.
const (
	ModeAuto   Mode = ""       // duplex where the agent has it
	ModeExec   Mode = "exec"   // one process for each prompt
	ModeDuplex Mode = "duplex" // one process for the conversation
)

// FollowUp says what happens to a prompt that comes while a turn runs.
type FollowUp string

// The follow-up policies.
const (
	FollowQueue     FollowUp = "queue"     // it waits
	FollowSteer     FollowUp = "steer"     // it goes into the running turn, where the agent can do that
	FollowInterrupt FollowUp = "interrupt" // the running turn is interrupted
	FollowReject    FollowUp = "reject"    // it is not taken
)

// Config is the [spool.Spec.Config] of an agent run. Cwd, Env, EnvPolicy and
// Limits of the spec apply to the agent's processes; Argv is not used.
type Config struct {
	Agent string `json:"agent"`
	Mode  Mode   `json:"mode,omitempty"`
	// Program is the agent's executable if it is not the usual name.
	Program string `json:"program,omitempty"`
	// Command starts an [ACP] agent.
	Command []string `json:"command,omitempty"`
	// Resume is the full id of the session to go on with.
	Resume string `json:"resume,omitempty"`
	// Fork goes on in a copy of that session.
	Fork   bool   `json:"fork,omitempty"`
	Model  string `json:"model,omitempty"`
	Effort string `json:"effort,omitempty"`
	// Provider is that of the model, where the agent wants it apart.
	Provider string `json:"provider,omitempty"`
	// Profile is a named configuration of the agent.
	Profile string `json:"profile,omitempty"`
	// Extra are arguments for the agent. Those of codex stand before
	// "exec", so they must not be options of exec.
	Extra []string `json:"extra,omitempty"`

	// Permissions is the agent's permission mode (claude), approval policy
	// (codex) or agent mode, in its own words.
	Permissions string `json:"permissions,omitempty"`
	// Sandbox is that of codex.
	Sandbox string `json:"sandbox,omitempty"`
	// AllowedTools need no permission (claude).
	AllowedTools []string `json:"allowed_tools,omitempty"`
	// SkipPermissions lets the agent do everything without asking.
	SkipPermissions bool `json:"skip_permissions,omitempty"`
	// Policy answers asks before anybody is asked.
	Policy json.RawMessage `json:"policy,omitempty"`
	// AskTimeoutMs is how long an ask stays open before it is denied.
	AskTimeoutMs int64 `json:"ask_timeout_ms,omitempty"`

	FollowUp FollowUp `json:"follow_up,omitempty"`
	// Deltas logs messages piece by piece, too.
	Deltas bool `json:"deltas,omitempty"`
	// Raw keeps the agent's own line in the first event made from it, if
	// both fit into one.
	Raw bool `json:"raw,omitempty"`
	// DropEnv are variables that the agent must not see, such as an API
	// key where an account should pay.
	DropEnv []string `json:"drop_env,omitempty"`
	// Retries is how often a request to the model is made again (claude).
	Retries int `json:"retries,omitempty"`

	Budget Budget `json:"budget,omitzero"`
	Stall  Stall  `json:"stall,omitzero"`
	// TurnTimeoutMs ends each turn after so long.
	TurnTimeoutMs int64 `json:"turn_timeout_ms,omitempty"`
	// ExitGraceMs is how long an agent may take to exit after its result.
	ExitGraceMs int64 `json:"exit_grace_ms,omitempty"`
	// CancelGraceMs is how long each polite means of stopping may take.
	CancelGraceMs int64 `json:"cancel_grace_ms,omitempty"`
}

// Budget bounds what a run may use. Zero means no bound.
type Budget struct {
	// Steps are the requests to the model in a turn, as far as the agent
	// tells of them: codex does not in exec mode.
	Steps   int     `json:"steps,omitempty"`
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
}

// Stall says how long an agent may be silent. Zero means the default, less
// than zero no limit.
type Stall struct {
	IdleMs  int64 `json:"idle_ms,omitempty"`  // while it should be thinking
	ToolMs  int64 `json:"tool_ms,omitempty"`  // while one of its actions runs
	HumanMs int64 `json:"human_ms,omitempty"` // while it waits for an answer
}

// What a run gets when its [Config] and [spool.Limits] do not say.
const (
	DefaultIdle        = 5 * time.Minute
	DefaultTool        = 30 * time.Minute
	DefaultHuman       = 24 * time.Hour
	DefaultAskTimeout  = 10 * time.Minute
	DefaultGrace       = 10 * time.Second // between SIGTERM and the kill: enough to save a transcript
	DefaultCancelGrace = 5 * time.Second
	DefaultExitGrace   = 10 * time.Second
)

// Bounds of a run.
const (
	// MaxLine is the longest line that is read; what is longer is passed
	// over with a notice.
	MaxLine = 64 << 20
	// MaxText is the most of one text that an event holds. The whole of it
	// goes into a blob.
	MaxText = 1 << 20
	// MaxQueued is how many prompts may wait.
	MaxQueued = 64
	// MaxPrompt bounds a prompt.
	MaxPrompt = 8 << 20
	// MaxHeld bounds the events that wait for the lock of a session.
	MaxHeld = 64 << 20
	// StderrHead and StderrTail are the lines kept of standard error.
	StderrHead = 20
	StderrTail = 50
	// MaxStderrLine is the most of one such line that is kept.
	MaxStderrLine = 4 << 10
)

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

// parseConfig decodes and checks the engine's part of a spec.
func parseConfig(spec *spool.Spec) (*Config, error) {
	if len(spec.Config) == 0 {
		return nil, fmt.Errorf("the spec of an agent run needs a config that names the agent")
	}
	c := new(Config)
	if err := json.Unmarshal(spec.Config, c); err != nil {
		return nil, fmt.Errorf("decode config: %w", err)
	}
	switch c.Mode {
	case "auto":
		c.Mode = ModeAuto
	case ModeAuto, ModeExec, ModeDuplex:
	default:
		return nil, fmt.Errorf("unknown mode %q", c.Mode)
	}
	switch c.FollowUp = cmp.Or(c.FollowUp, FollowQueue); c.FollowUp {
	case FollowQueue, FollowSteer, FollowInterrupt, FollowReject:
	default:
		return nil, fmt.Errorf("unknown follow-up policy %q", c.FollowUp)
	}
	if c.Fork && c.Resume == "" {
		return nil, fmt.Errorf("a fork needs a session to resume")
	}
	return c, nil
}

// duration reads milliseconds of a config: zero means the default, less than
// zero none.
func duration(ms int64, def time.Duration) time.Duration {
	switch {
	case ms == 0:
		return def
	case ms < 0:
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
