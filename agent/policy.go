package agent

import (
	"encoding/json"
)

// Approval is the data of an ask of kind [spool.AskApproval]: what an agent
// wants to do. The ask's name is its kind.
type Approval struct {
	// Action is the id of the action that waits for the answer.
	Action string     `json:"action,omitempty"`
	Kind   ActionKind `json:"kind"`
	Tool   string     `json:"tool,omitempty"` // the agent's name for it
	// Command is a line for a shell.
	Command string   `json:"command,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Paths   []string `json:"paths,omitempty"` // of the files it is about
	Reason  string   `json:"reason,omitempty"`
	// Input is what the agent gives to the tool, in its own words.
	Input   json.RawMessage `json:"input,omitempty"`
	Changes []FileChange    `json:"changes,omitempty"`
}

// The kinds of approval besides the kinds of action.
const (
	ApprovePermissions ActionKind = "permissions" // more rights for the rest of the turn or session
	ApprovePlan        ActionKind = "plan"        // to begin with what it planned
)

// Verdict is what a policy says about an approval.
type Verdict string

// The verdicts.
const (
	VerdictAllow Verdict = "allow"
	VerdictDeny  Verdict = "deny"
	VerdictAsk   Verdict = "ask" // somebody has to say
)

// Policy answers approvals before anybody is asked. The first rule that
// matches decides. As a file it is TOML:
//
//	default = "ask"     # what no rule matches: ask, allow or deny
//	deadline = "10m"    # what nobody answered by then is denied
//
//	[[rule]]
//	verdict = "allow"
//	command = ["go test", "git status"]
//
//	[[rule]]
//	verdict = "deny"
//	kind = ["file_change"]
//	path = ["/etc/**", ".git/**"]
//	reason = "configuration is ours to change"
type Policy struct {
	Default Verdict `json:"default,omitempty"`
	// DeadlineMs is how long an ask stays open before it is denied, if
	// [Config.AskTimeoutMs] says nothing.
	DeadlineMs int64  `json:"deadline_ms,omitempty"`
	Rules      []Rule `json:"rule,omitempty"`
}

// Rule matches an approval if every condition that it has holds; one with
// none matches all. A condition holds if any of its values does.
//
// A rule that allows must be right about everything the agent is about to do:
// all files, all commands of a line, and nothing in it that a shell would do
// besides. A rule that denies or asks is content with one of them.
type Rule struct {
	Verdict Verdict `toml:"verdict" json:"verdict"`
	// Kinds are those of [Approval.Kind].
	Kinds []string `toml:"kind" json:"kind,omitempty"`
	// Commands are the first words of command lines.
	Commands []string `toml:"command" json:"command,omitempty"`
	// Paths are patterns of files, with * within a name and ** across
	// names. They begin at the working directory if they are relative.
	Paths []string `toml:"path" json:"path,omitempty"`
	// Tools are patterns of [Approval.Tool], such as "mcp__github__*".
	Tools []string `toml:"tool" json:"tool,omitempty"`
	// Reason is told to the agent when it is denied.
	Reason string `toml:"reason" json:"reason,omitempty"`
}
