package agent

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// Questions are the data of an ask of kind [spool.AskQuestion]: what an agent
// wants to know. The answers are given by the question's id in
// [agent.Decision.Answers]; the choice alone answers a single one.
type Questions struct {
	Action    string     `json:"action,omitempty"` // the id of the action that waits
	Questions []Question `json:"questions"`
	// Schema describes the form that is asked for, where it is one.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Question is one of them.
type Question struct {
	ID       string            `json:"id"`
	Header   string            `json:"header,omitempty"`
	Text     string            `json:"text"`
	Options  []spool.AskOption `json:"options,omitempty"`
	Multiple bool              `json:"multiple,omitempty"`
	Secret   bool              `json:"secret,omitempty"`
}
