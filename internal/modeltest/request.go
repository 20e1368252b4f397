package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Request is a request to the model, in the same form for every dialect.
type Request struct {
	Dialect Dialect
	Header  http.Header
	Body    json.RawMessage // as received

	Model  string
	Stream bool
	Tools  []Tool
	Input  []Item // the whole conversation
}

// Tool is a tool offered to the model: of type function, custom (free form
// input) or a built-in of the API, which has no name.
type Tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Tool returns the tool with a name, or nil if it is not offered.
func (r *Request) Tool(name string) *Tool {
	for i := range r.Tools {
		if r.Tools[i].Name == name {
			return &r.Tools[i]
		}
	}
	return nil
}

// The types of items.
const (
	ItemMessage        = "message"
	ItemReasoning      = "reasoning"
	ItemFunctionCall   = "function_call"
	ItemFunctionOutput = "function_call_output"
	ItemCustomCall     = "custom_tool_call"
	ItemCustomOutput   = "custom_tool_call_output"
)

// The roles of messages.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Item is one entry of a conversation, in either direction, in the form of the
// Responses API. The type decides which fields are used.
type Item struct {
	Type      string  `json:"type"`
	Role      string  `json:"role,omitempty"`
	Content   Content `json:"content,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Namespace string  `json:"namespace,omitempty"` // of a function, in the Responses API
	Arguments string  `json:"arguments,omitempty"` // JSON, of a function call
	Input     string  `json:"input,omitempty"`     // of a custom call
	Output    Content `json:"output,omitempty"`
}

// isOutput reports whether the item is the output of a tool.
func (i *Item) isOutput() bool { return i.Type == ItemFunctionOutput || i.Type == ItemCustomOutput }

// isAnswer reports whether the model wrote the item.
func (i *Item) isAnswer() bool {
	switch i.Type {
	case ItemReasoning, ItemFunctionCall, ItemCustomCall:
		return true
	case ItemMessage, "":
		return i.Role == RoleAssistant
	}
	return false
}

// Content is the text of an item. The APIs write it as a string or as a list of
// parts; parts that are not text are ignored.
type Content []Part

// Part is a part of a content list.
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

// Answers returns the number of answers of the model in the conversation.
// Consecutive items of the model are one answer.
func (r *Request) Answers() int {
	n, answering := 0, false
	for i := range r.Input {
		a := r.Input[i].isAnswer()
		if a && !answering {
			n++
		}
		answering = a
	}
	return n
}

// Prompt returns the last text of the user.
func (r *Request) Prompt() string {
	for i := len(r.Input) - 1; i >= 0; i-- {
		if item := &r.Input[i]; item.Role == RoleUser && !item.isOutput() {
			if text := item.Content.String(); text != "" {
				return text
			}
		}
	}
	return ""
}

// Outputs returns the outputs of tools, oldest first.
func (r *Request) Outputs() []Item {
	var outs []Item
	for _, item := range r.Input {
		if item.isOutput() {
			outs = append(outs, item)
		}
	}
	return outs
}
