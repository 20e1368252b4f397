package codextest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Request is what codex asked the model.
type Request struct {
	Header http.Header     `json:"-"`
	Body   json.RawMessage `json:"-"` // as received

	Model string `json:"model"`
	Tools []Tool `json:"tools"`
	Input []Item `json:"input"` // the whole conversation
}

// Tool is a tool codex offers to the model: of type function, custom (free
// form input) or a built-in of the API, which has no name.
type Tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Tool returns the tool of a name, or nil if it is not offered.
func (r *Request) Tool(name string) *Tool {
	for i := range r.Tools {
		if r.Tools[i].Name == name {
			return &r.Tools[i]
		}
	}
	return nil
}

// The types of items with a tool call or its output.
const (
	itemMessage        = "message"
	itemFunctionCall   = "function_call"
	itemFunctionOutput = "function_call_output"
	itemCustomCall     = "custom_tool_call"
	itemCustomOutput   = "custom_tool_call_output"
)

// Item is one entry of a conversation, in either direction. Which fields
// count depends on the type.
type Item struct {
	Type      string  `json:"type"`
	Role      string  `json:"role,omitempty"`
	Content   Content `json:"content,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments string  `json:"arguments,omitempty"` // JSON, of a function call
	Input     string  `json:"input,omitempty"`     // of a custom call
	Output    Content `json:"output,omitempty"`
}

// Content is the text of an item. The API writes it as a string or as a list
// of parts; parts that are not text are left out.
type Content []Part

// Part is a piece of content.
type Part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// UnmarshalJSON accepts both forms.
func (c *Content) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = Content{{Type: "input_text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]Part)(c))
}

// String returns the text.
func (c Content) String() string {
	var b strings.Builder
	for _, p := range c {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Outputs returns the tool outputs in the conversation, oldest first.
func (r *Request) Outputs() []Output {
	var outs []Output
	for _, item := range r.Input {
		switch item.Type {
		case itemFunctionOutput, itemCustomOutput:
			outs = append(outs, parseOutput(item.CallID, item.Output.String()))
		}
	}
	return outs
}
