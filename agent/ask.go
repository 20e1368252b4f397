package agent

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// Approval is the data of an ask of kind [AskApproval]: what an agent wants
// to do. The name of the ask is the kind of the approval.
type Approval struct {
	// Action is the id of the action that waits for the answer.
	Action string     `json:"action,omitempty"`
	Kind   ActionKind `json:"kind"`
	Tool   string     `json:"tool,omitempty"` // the agent's name for it
	// Command is a command line for a shell.
	Command string   `json:"command,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Paths   []string `json:"paths,omitempty"` // the files that the action is about
	Reason  string   `json:"reason,omitempty"`
	// Input is what the agent gives to the tool, as the agent wrote it.
	Input   json.RawMessage `json:"input,omitempty"`
	Changes []FileChange    `json:"changes,omitempty"`
}

// The kinds of approval besides the kinds of action.
const (
	ApprovePermissions ActionKind = "permissions" // more rights for the rest of the turn or session
	ApprovePlan        ActionKind = "plan"        // to begin with what the agent planned
)

// Questions are the data of an ask of kind [AskQuestion]: what an agent
// wants to know. [Decision.Answers] answers them by the id of each question;
// [Decision.Choice] alone answers a single question.
type Questions struct {
	Action    string     `json:"action,omitempty"` // the id of the action that waits
	Questions []Question `json:"questions"`
	// Schema describes the form that the agent wants filled in, if it is one.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Question is one of [Questions].
type Question struct {
	ID       string            `json:"id"`
	Header   string            `json:"header,omitempty"`
	Text     string            `json:"text"`
	Options  []spool.AskOption `json:"options,omitempty"`
	Multiple bool              `json:"multiple,omitempty"` // several options may be chosen
	Secret   bool              `json:"secret,omitempty"`
}

// Decision is the answer to an ask of kind [AskApproval] or
// [AskQuestion]. An answer that is a plain string is a Decision with that
// Choice.
type Decision struct {
	// Choice is the ID of a [spool.AskOption], or [Allow], [AllowSession],
	// [Deny] or [DenyStop].
	Choice string `json:"choice"`
	// Message tells the agent why it is denied.
	Message string `json:"message,omitempty"`
	// Input replaces what the agent wanted to do, where the agent takes that.
	Input json.RawMessage `json:"input,omitempty"`
	// Answers are the answers to questions, by the id of each question.
	Answers map[string]string `json:"answers,omitempty"`
}

// The choices of a [Decision] that work whatever the options are.
const (
	Allow        = "allow"         // this once
	AllowSession = "allow_session" // this, and the like for the rest of the session
	Deny         = "deny"
	DenyStop     = "deny_stop" // and end the turn
)
