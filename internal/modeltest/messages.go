package modeltest

import (
	"encoding/json"
)

func decodeMessages(body []byte, r *Request) error {
	var w struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
		Messages []struct {
			Role    string `json:"role"`
			Content blocks `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	r.Model, r.Stream = w.Model, w.Stream
	for _, t := range w.Tools {
		r.Tools = append(r.Tools, Tool{Type: t.Type, Name: t.Name, Description: t.Description, Parameters: t.InputSchema})
	}
	for _, m := range w.Messages {
		for _, b := range m.Content {
			switch b.Type {
			case "text":
				r.Input = append(r.Input, Item{Type: ItemMessage, Role: m.Role, Content: Content{{Type: "text", Text: b.Text}}})
			case "tool_use":
				r.Input = append(r.Input, Item{Type: ItemFunctionCall, CallID: b.ID, Name: b.Name, Arguments: string(b.Input)})
			case "tool_result":
				r.Input = append(r.Input, Item{Type: ItemFunctionOutput, CallID: b.ToolUseID, Output: b.Content})
			}
		}
	}
	return nil
}

// block is a content block of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   Content         `json:"content"`
}

// blocks is the content of a message, which may also be a string.
type blocks []block

func (b *blocks) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*b = blocks{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]block)(b))
}

// messagesEnd returns the stop reason of an answer.
func messagesEnd(a Reply) string {
	if a.Limited {
		return "max_tokens"
	}
	for _, item := range a.Items {
		if item.Type != ItemMessage {
			return "tool_use"
		}
	}
	return "end_turn"
}

func messagesUsage() object {
	return object{
		"input_tokens": InputTokens, "output_tokens": OutputTokens,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
	}
}

func messagesWhole(r *Request, a Reply, content []any, end any) object {
	return object{
		"id": a.id, "type": "message", "role": RoleAssistant, "model": r.Model,
		"content": content, "stop_reason": end, "stop_sequence": nil, "usage": messagesUsage(),
	}
}

func wholeMessages(r *Request, a Reply) any {
	content := []any{}
	for _, item := range a.Items {
		if item.Type == ItemMessage {
			content = append(content, object{"type": "text", "text": item.Content.String()})
		} else {
			content = append(content, object{"type": "tool_use", "id": item.CallID, "name": item.Name, "input": json.RawMessage(item.Arguments)})
		}
	}
	return messagesWhole(r, a, content, messagesEnd(a))
}

func streamMessages(r *Request, a Reply) []event {
	var events []event
	add := func(name string, fields object) {
		fields["type"] = name
		events = append(events, event{name, fields})
	}
	add("message_start", object{"message": messagesWhole(r, a, []any{}, nil)})
	for i, item := range a.Items {
		start, kind, field, text := object{"type": "text", "text": ""}, "text_delta", "text", item.Content.String()
		if item.Type != ItemMessage {
			start = object{"type": "tool_use", "id": item.CallID, "name": item.Name, "input": object{}}
			kind, field, text = "input_json_delta", "partial_json", item.Arguments
		}
		add("content_block_start", object{"index": i, "content_block": start})
		for _, part := range halves(text) {
			add("content_block_delta", object{"index": i, "delta": object{"type": kind, field: part}})
		}
		add("content_block_stop", object{"index": i})
	}
	add("message_delta", object{"delta": object{"stop_reason": messagesEnd(a), "stop_sequence": nil}, "usage": messagesUsage()})
	add("message_stop", object{})
	return events
}
