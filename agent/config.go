package agent

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
	// Policy answers approvals before a person is asked.
	Policy *Policy `json:"policy,omitempty"`
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
