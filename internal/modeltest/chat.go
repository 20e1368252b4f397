package modeltest

import (
	"encoding/json"
)

func decodeChat(body []byte, r *Request) error {
	var w struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
		Tools  []struct {
			Type     string `json:"type"`
			Function Tool   `json:"function"`
		} `json:"tools"`
		Messages []struct {
			Role       string  `json:"role"`
			Content    Content `json:"content"`
			ToolCallID string  `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	r.Model, r.Stream = w.Model, w.Stream
	for _, t := range w.Tools {
		t.Function.Type = t.Type
		r.Tools = append(r.Tools, t.Function)
	}
	for _, m := range w.Messages {
		if m.Role == "tool" {
			r.Input = append(r.Input, Item{Type: ItemFunctionOutput, CallID: m.ToolCallID, Output: m.Content})
			continue
		}
		if len(m.Content) > 0 {
			r.Input = append(r.Input, Item{Type: ItemMessage, Role: m.Role, Content: m.Content})
		}
		for _, c := range m.ToolCalls {
			r.Input = append(r.Input, Item{Type: ItemFunctionCall, CallID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
	}
	return nil
}

func chatUsage() object {
	return object{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}
}

// chatEnd returns the finish reason of an answer.
func chatEnd(a Reply) string {
	if a.Limited {
		return "length"
	}
	for _, item := range a.Items {
		if item.Type != ItemMessage {
			return "tool_calls"
		}
	}
	return "stop"
}

func chatCall(index int, item Item) object {
	return object{
		"index": index, "id": item.CallID, "type": "function",
		"function": object{"name": item.Name, "arguments": item.Arguments},
	}
}

func streamChat(r *Request, a Reply) []event {
	chunk := func(choices []any, more object) event {
		o := object{"id": a.id, "object": "chat.completion.chunk", "created": 0, "model": r.Model, "choices": choices}
		for k, v := range more {
			o[k] = v
		}
		return event{"", o}
	}
	delta := func(d object, end any) event {
		return chunk([]any{object{"index": 0, "delta": d, "finish_reason": end}}, nil)
	}
	events := []event{delta(object{"role": RoleAssistant, "content": ""}, nil)}
	calls := 0
	for _, item := range a.Items {
		if item.Type == ItemMessage {
			for _, part := range halves(item.Content.String()) {
				events = append(events, delta(object{"content": part}, nil))
			}
			continue
		}
		events = append(events, delta(object{"tool_calls": []any{chatCall(calls, item)}}, nil))
		calls++
	}
	return append(events,
		delta(object{}, chatEnd(a)),
		chunk([]any{}, object{"usage": chatUsage()}),
		event{"", rawText("[DONE]")},
	)
}

func wholeChat(r *Request, a Reply) any {
	text, calls := "", []any{}
	for _, item := range a.Items {
		if item.Type == ItemMessage {
			text += item.Content.String()
		} else {
			calls = append(calls, chatCall(len(calls), item))
		}
	}
	m := object{"role": RoleAssistant, "content": text}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return object{
		"id": a.id, "object": "chat.completion", "created": 0, "model": r.Model, "usage": chatUsage(),
		"choices": []any{object{"index": 0, "message": m, "finish_reason": chatEnd(a)}},
	}
}
