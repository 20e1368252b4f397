package agent

// The agents that have a name.
const (
	Codex    = "codex"    // OpenAI codex
	Claude   = "claude"   // Anthropic Claude Code
	OpenCode = "opencode" // opencode
	Pi       = "pi"       // pi
	ACP      = "acp"      // any command that speaks the Agent Client Protocol
)

// Mode is how to talk to an agent.
type Mode string

// The modes.
const (
	ModeAuto   Mode = ""       // duplex where the agent has it
	ModeExec   Mode = "exec"   // one process for each prompt
	ModeDuplex Mode = "duplex" // one process for the conversation
)

// FollowUp is what happens to a prompt that arrives while a turn runs.
type FollowUp string

// The ways to follow up. The default is [FollowQueue].
const (
	FollowQueue     FollowUp = "queue"     // the prompt waits
	FollowSteer     FollowUp = "steer"     // it joins the running turn where the agent can do that, else it waits
	FollowInterrupt FollowUp = "interrupt" // the running turn is interrupted
	FollowReject    FollowUp = "reject"    // the prompt is refused with [spool.ErrBusy]
)

// Config is the [spool.Spec.Config] of an agent run; see [Config.Spec]. Cwd, Env,
// EnvPolicy and Limits of the spec apply to the agent's processes; Argv is not
// used.
//
// Durations are milliseconds. Zero means the default, less than zero no limit.
type Config struct {
	// Agent is the name of the agent, such as [Codex].
	Agent string `json:"agent"`
	Mode  Mode   `json:"mode,omitempty"`
	// Program is the agent's executable, if it is not the usual one in PATH.
	Program string `json:"program,omitempty"`
	// Command starts an [ACP] agent.
	Command []string `json:"command,omitempty"`
	// Resume is the full id of the session to go on with.
	Resume string `json:"resume,omitempty"`
	// Fork goes on in a copy of that session.
	Fork bool `json:"fork,omitempty"`
	// Model, Effort, Provider and Profile are passed to the agent unchanged.
	Model    string `json:"model,omitempty"`
	Effort   string `json:"effort,omitempty"`
	Provider string `json:"provider,omitempty"` // for agents that take it apart from the model
	Profile  string `json:"profile,omitempty"`  // a named configuration of the agent
	// Extra are more arguments for the agent. Those of codex stand before
	// "exec", so they must not be options of exec.
	Extra []string `json:"extra,omitempty"`

	// Permissions is the permission mode (claude), the approval policy
	// (codex) or the mode (ACP) of the agent, passed to it unchanged.
	Permissions string `json:"permissions,omitempty"`
	// Sandbox is the sandbox mode of codex.
	Sandbox string `json:"sandbox,omitempty"`
	// AllowedTools are the tools that claude uses without asking.
	AllowedTools []string `json:"allowed_tools,omitempty"`
	// SkipPermissions lets the agent do everything without asking.
	SkipPermissions bool `json:"skip_permissions,omitempty"`
	// Policy decides permission requests before a person is asked.
	Policy *Policy `json:"policy,omitempty"`
	// AskTimeoutMs is how long an ask stays open before it is denied. The
	// default is 10 minutes.
	AskTimeoutMs int64 `json:"ask_timeout_ms,omitempty"`

	// FollowUp is what happens to a prompt that arrives while a turn runs.
	FollowUp FollowUp `json:"follow_up,omitempty"`
	// Deltas logs the pieces of messages as they come, too.
	Deltas bool `json:"deltas,omitempty"`
	// Raw keeps each line of the agent in the first event made from it, if
	// both fit into one event.
	Raw bool `json:"raw,omitempty"`
	// ImageBytes bounds the images of a prompt together. The default is
	// [DefaultImageBytes]; less than zero refuses all images.
	ImageBytes int64 `json:"image_bytes,omitempty"`
	// DropEnv are variables that the agent must not see, such as an API key
	// where an account should pay.
	DropEnv []string `json:"drop_env,omitempty"`
	// Retries is how often claude repeats a request to the model.
	Retries int `json:"retries,omitempty"`

	Budget Budget `json:"budget,omitzero"`
	Stall  Stall  `json:"stall,omitzero"`
	// TurnTimeoutMs is how long each turn may take. The default is no limit.
	TurnTimeoutMs int64 `json:"turn_timeout_ms,omitempty"`
	// ExitGraceMs is how long an agent may take to exit after its result.
	// The default is 10 seconds.
	ExitGraceMs int64 `json:"exit_grace_ms,omitempty"`
	// CancelGraceMs is how long an interrupt in the agent's own protocol, and
	// then the signal on which it exits cleanly, may take to work. The
	// default is 5 seconds.
	CancelGraceMs int64 `json:"cancel_grace_ms,omitempty"`
}

// Budget bounds what a run may use. Zero means no bound.
type Budget struct {
	// Steps are the requests to the model in one turn, as far as the agent
	// reports them: codex does not in exec mode.
	Steps   int     `json:"steps,omitempty"`
	Tokens  int64   `json:"tokens,omitempty"`   // of all turns
	CostUSD float64 `json:"cost_usd,omitempty"` // of all turns
}

// Stall is how long an agent may be silent before its turn is ended.
type Stall struct {
	IdleMs  int64 `json:"idle_ms,omitempty"`  // while it should be thinking; 5 minutes by default
	ToolMs  int64 `json:"tool_ms,omitempty"`  // while one of its actions runs; 30 minutes by default
	HumanMs int64 `json:"human_ms,omitempty"` // while it waits for an answer; 24 hours by default
}
