package modeltest

import (
	"encoding/json"
	"fmt"
)

func decodeResponses(body []byte, r *Request) error {
	var w struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Tools  []Tool          `json:"tools"`
		Input  json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return err
	}
	r.Model, r.Stream, r.Tools = w.Model, w.Stream, w.Tools
	switch {
	case len(w.Input) == 0:
		return nil
	case w.Input[0] == '"':
		var c Content
		if err := json.Unmarshal(w.Input, &c); err != nil {
			return err
		}
		r.Input = []Item{{Type: ItemMessage, Role: RoleUser, Content: c}}
		return nil
	}
	return json.Unmarshal(w.Input, &r.Input)
}

func streamResponses(r *Request, a Reply) []event {
	var events []event
	add := func(name string, fields object) {
		fields["type"] = name
		fields["sequence_number"] = len(events)
		events = append(events, event{name, fields})
	}
	add("response.created", object{"response": object{"id": a.id, "object": "response", "status": "in_progress", "output": []any{}}})
	for i, item := range a.Items {
		id := fmt.Sprintf("%s_item_%d", a.id, i)
		if item.Type == ItemMessage {
			open := responseItem(id, Item{Type: ItemMessage, Role: item.Role})
			open["content"] = []any{}
			add("response.output_item.added", object{"output_index": i, "item": open})
			for _, part := range halves(item.Content.String()) {
				add("response.output_text.delta", object{"item_id": id, "output_index": i, "content_index": 0, "delta": part})
			}
		}
		add("response.output_item.done", object{"output_index": i, "item": responseItem(id, item)})
	}
	end := wholeResponses(r, a).(object)
	add("response."+end["status"].(string), object{"response": end})
	return events
}

func responseItem(id string, item Item) object {
	o := object{"id": id, "type": item.Type, "status": "completed"}
	switch item.Type {
	case ItemMessage:
		o["role"], o["content"] = item.Role, item.Content
	case ItemFunctionCall:
		o["call_id"], o["name"], o["arguments"] = item.CallID, item.Name, item.Arguments
		if item.Namespace != "" {
			o["namespace"] = item.Namespace
		}
	case ItemCustomCall:
		o["call_id"], o["name"], o["input"] = item.CallID, item.Name, item.Input
	}
	return o
}

func wholeResponses(r *Request, a Reply) any {
	output := []any{}
	for i, item := range a.Items {
		output = append(output, responseItem(fmt.Sprintf("%s_item_%d", a.id, i), item))
	}
	o := object{
		"id": a.id, "object": "response", "model": r.Model, "status": "completed", "output": output,
		"usage": object{
			"input_tokens": InputTokens, "output_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens,
			"input_tokens_details":  object{"cached_tokens": 0},
			"output_tokens_details": object{"reasoning_tokens": 0},
		},
	}
	if a.Limited {
		o["status"] = "incomplete"
		o["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	return o
}
