package agent

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// The values of [spool.Done.ErrorClass] of an agent's turn.
const (
	ClassAuth        = "auth"        // the key or the account is not accepted
	ClassModel       = "model"       // there is no such model
	ClassRateLimit   = "rate_limit"  // too many requests, or the plan is used up
	ClassOverloaded  = "overloaded"  // the servers of the model cannot answer now
	ClassNetwork     = "network"     // no connection, or it broke
	ClassContext     = "context"     // too many tokens for the model
	ClassPermission  = "permission"  // an action was not allowed
	ClassSession     = "session"     // there is no such session to resume
	ClassUsage       = "usage"       // the command line was not understood
	ClassStart       = "start"       // the program could not be started
	ClassProtocol    = "protocol"    // the agent broke its own protocol
	ClassUnsupported = "unsupported" // the agent cannot do what the prompt needs
	ClassStopped     = "stopped"     // Spool ended it: a request, a limit or a budget
	ClassOther       = "other"
)

// Started is the payload of a started event: the session of an agent is
// known. There is at most one in a run.
type Started struct {
	Agent string `json:"agent"` // codex, claude, opencode, pi, acp …
	// Resume is the full id of the session in the agent's own store; see
	// [Config.Resume].
	Resume    string   `json:"resume,omitempty"`
	Resumed   bool     `json:"resumed,omitempty"` // the session existed before this run
	Title     string   `json:"title,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	Model     string   `json:"model,omitempty"`
	Mode      string   `json:"mode,omitempty"` // the permission mode, as the agent names it
	Transport string   `json:"transport,omitempty"`
	Version   string   `json:"version,omitempty"`
	Tools     []string `json:"tools,omitempty"`
	// Capabilities are what can be done with a turn: interrupt, steer,
	// ask, images.
	Capabilities []string        `json:"capabilities,omitempty"`
	Pid          int             `json:"pid,omitempty"`
	Detail       json.RawMessage `json:"detail,omitempty"`
}

// The phases of a [Message].
const (
	PhaseCommentary = "commentary" // said on the way to the answer
	PhaseFinal      = "final"      // the answer
)

// Message is the payload of a message event: the agent said something.
type Message struct {
	ID   string `json:"id,omitempty"`
	Role string `json:"role,omitempty"` // empty for the agent itself
	Text string `json:"text"`
	// Phase is [PhaseCommentary] or [PhaseFinal], where the agent tells.
	Phase string `json:"phase,omitempty"`
	// Delta marks a piece of a message; the whole message comes later.
	Delta bool `json:"delta,omitempty"`
	// Blob holds the whole text if it is too large; Text is its beginning.
	Blob    *spool.Blob `json:"blob,omitempty"`
	Parent  string      `json:"parent,omitempty"`  // the action of the subagent that said it
	History bool        `json:"history,omitempty"` // from before this run
}

// Reasoning is the payload of a reasoning event: what an agent thinks, as far
// as it shows it.
type Reasoning struct {
	ID      string      `json:"id,omitempty"`
	Text    string      `json:"text"`
	Delta   bool        `json:"delta,omitempty"`
	Blob    *spool.Blob `json:"blob,omitempty"`
	Parent  string      `json:"parent,omitempty"`
	History bool        `json:"history,omitempty"`
}

// ActionKind is what an agent does. New kinds may be added.
type ActionKind string

// The kinds of action.
const (
	ActionCommand    ActionKind = "command"
	ActionFileChange ActionKind = "file_change"
	ActionTool       ActionKind = "tool"
	ActionMCP        ActionKind = "mcp"
	ActionWebSearch  ActionKind = "web_search"
	ActionFetch      ActionKind = "fetch"
	ActionRead       ActionKind = "read"
	ActionSearch     ActionKind = "search"
	ActionSubagent   ActionKind = "subagent"
	ActionSkill      ActionKind = "skill"
	ActionNote       ActionKind = "note"
	ActionTurn       ActionKind = "turn" // the agent began to work on a prompt
	ActionOther      ActionKind = "other"
)

// ActionPhase is how far an action is.
type ActionPhase string

// The phases of an action. An action may be completed without a start.
const (
	ActionStarted   ActionPhase = "started"
	ActionUpdated   ActionPhase = "updated"
	ActionCompleted ActionPhase = "completed"
)

// Action is the payload of an action event: what an agent does. Every
// action that started is completed before its turn is done.
type Action struct {
	ID    string      `json:"id"` // unique within the run
	Kind  ActionKind  `json:"kind"`
	Phase ActionPhase `json:"phase"`
	Title string      `json:"title"`
	// OK tells whether a completed action succeeded, if that is known.
	OK      *bool  `json:"ok,omitempty"`
	Level   string `json:"level,omitempty"` // debug, info, warning, error
	Message string `json:"message,omitempty"`
	// Tool is the agent's name for what it used.
	Tool     string          `json:"tool,omitempty"`
	Status   string          `json:"status,omitempty"` // as the agent names it
	Input    json.RawMessage `json:"input,omitempty"`
	ExitCode *int            `json:"exit_code,omitempty"`
	// DurationMs is how long a completed action took, if its start is known.
	DurationMs int64  `json:"duration_ms,omitempty"`
	Output     string `json:"output,omitempty"`
	// OutputBlob holds the whole output if it is too large; Output is its
	// beginning.
	OutputBlob *spool.Blob     `json:"output_blob,omitempty"`
	Changes    []FileChange    `json:"changes,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	Parent     string          `json:"parent,omitempty"` // the action of the subagent that does it
	// Synthetic marks an end that the agent did not report.
	Synthetic bool `json:"synthetic,omitempty"`
	History   bool `json:"history,omitempty"`
}

// FileChange is one file that an [Action] changes.
type FileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind,omitempty"` // add, update, delete, move
	// Diff are the hunks of a unified diff, as far as the agent tells what
	// changes. A hunk whose place in the file is not known begins with "@@ @@".
	Diff string `json:"diff,omitempty"`
}

// Plan is the payload of a plan event: all that the agent means to do now.
type Plan struct {
	ID      string     `json:"id,omitempty"`
	Items   []PlanItem `json:"items"`
	History bool       `json:"history,omitempty"`
}

// PlanItem is one step of a [Plan].
type PlanItem struct {
	Text   string `json:"text"`
	Status string `json:"status"` // pending, in_progress, completed
}

// Spend is what a turn, a run or a session used. Input counts all tokens given
// to the model and Output all that it returned; the other counts are parts of
// these.
type Spend struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	// CostUSD is the cost that the agent reports, if it does.
	CostUSD float64 `json:"cost_usd,omitempty"`
	Steps   int     `json:"steps,omitempty"` // requests to the model
}

// Tokens is the number of tokens, in and out.
func (s Spend) Tokens() int64 { return s.Input + s.Output }

// Usage is the payload of a usage event and of [spool.Done.Usage].
type Usage struct {
	// Turn is what this turn used. It is absent if the agent reports only
	// totals and the total before the turn is not known.
	Turn *Spend `json:"turn,omitempty"`
	// Run is what the turns of this run used, as far as that is known.
	Run *Spend `json:"run,omitempty"`
	// Session is the total of the session, if the agent reports it.
	Session *Spend `json:"session,omitempty"`
	// ContextUsed and ContextSize are the tokens in the model's window.
	ContextUsed int64 `json:"context_used,omitempty"`
	ContextSize int64 `json:"context_size,omitempty"`
}

// Retry is the payload of a retry event: a request to the model failed and is
// made again.
type Retry struct {
	Attempt int    `json:"attempt"`
	Max     int    `json:"max,omitempty"`
	DelayMs int64  `json:"delay_ms,omitempty"`
	Status  int    `json:"status,omitempty"` // the HTTP status
	Reason  string `json:"reason,omitempty"`
	Class   string `json:"class,omitempty"` // one of the Class constants
}
